"""Figures that are measured on the global model of one trained run: FedAvg's, on a cell of table 1.

Figures 2 and 6 show accuracy per class before and after a local update and after aggregation, figure 7 the features of
a majority, a minority and a missing class.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.diagnostics.accuracy_by_class import local_effect
from fedskew.diagnostics.feature_spread import feature_map
from fedskew.diagnostics.kinds import KINDS, kinds
from fedskew.diagnostics.observing import from_folder, observe
from fedskew.paper.choice import Choice, chosen
from fedskew.paper.figures import figure6
from fedskew.paper.table import EVERYTHING, NOTHING
from fedskew.paper.tables import TABLES
from fedskew.report.class_figures import before_and_after, feature_maps
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.session import finished_records
from fedskew.simulation.simulation import Simulation, fingerprint

CELL = "cifar10/dirichlet:0.1"
METHODS = ("fedavg", "fedlc")
Measured = dict[str, Any]
PRINTED = {"majority": 2608, "minority": 448, "missing": 0}
"""Training examples of the three classes in the paper's figure."""


@dataclass(frozen=True)
class TrainedFigure:
    """`look` measures a simulation at the end of its run; `key` names the measurement in the run's folder; `picture`
    draws it; `words` describes it in lines."""

    name: str
    title: str
    key: str
    look: Callable[[Simulation], Measured]
    picture: Callable[..., list[Path]]
    words: Callable[[Measured], list[str]]

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """One run, whatever the number of seeds."""
        return [TABLES["table1"].run(_cell(choice), "fedavg", choice)]

    def measure(self, store: Store, choice: Choice) -> None:
        """Measure the model of the run's last round, unless that is done already, and store the result with the run."""
        for run in self.runs(choice):
            folder = store.folder(run.hash)
            ready = folder.exists() and folder.checkpoint.exists() and bool(finished_records(run, folder))
            if not ready or self.key in folder.measured(run.rounds):
                continue
            simulation = from_folder(folder, run.device)
            if simulation.round != run.rounds:
                raise ValueError(
                    f"the model of round {run.rounds} is gone: run {run.hash} continued to {simulation.round}; "
                    "use another store (--runs FOLDER), or leave out --rounds"
                )
            device = fingerprint(simulation)["device"]
            folder.write_measured(run.rounds, {self.key: self.look(simulation), _where(self.key): device})

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """The measurement on the longest run that has one."""
        full = TABLES["table1"].full_rounds(_cell(choice))
        asked = [run.model_dump() for run in self.runs(choice)]
        found = [r for run in asked for r in results.answering(run) if self.key in r.measured and r.rounds <= full]
        best = max(found, key=lambda result: result.rounds, default=None)
        if best is None:
            return []
        about = {"hash": best.hash, "rounds": best.rounds, "precision": best.precision}
        about["measured_on"] = best.measured.get(_where(self.key))
        return [{**about, "shortened": best.rounds < full, "measured": best.measured[self.key]}]

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        if not rows:
            raise ValueError(f"{self.name} has not been measured yet; `fedskew paper run {self.name}` measures it")
        row = rows[0]
        note = f"shortened: the model is of round {row['rounds']}" if row["shortened"] else None
        return self.picture(path, row["measured"], note=note)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        short = [f"shortened: the model is of round {row['rounds']}" for row in rows if row["shortened"]]
        return [*(line for row in rows for line in self.words(row["measured"])), *short]


def _where(key: str) -> str:
    """The name under which a folder keeps the device of a measurement."""
    return f"{key}_device"


def _cell(choice: Choice) -> str:
    """The first requested cell."""
    return chosen("cell", choice.cells or (CELL,), TABLES["table1"].cells)[0]


def before_after(simulation: Simulation, *, client_limit: int | None = None, **how: Any) -> dict[str, Any]:
    """`local_effect` of the next round; `how` is for `observe`, which leaves the simulation as it is."""
    seen = observe(simulation, **how)
    assert seen.update is not None
    return local_effect(seen, seen.update, client_limit)


def effects(simulation: Simulation) -> dict[str, Any]:
    """What one local epoch does under each method, from the same global model."""
    return {method: before_after(simulation, algorithm=method, local_epochs=1) for method in METHODS}


def effect_words(measured: dict[str, Any]) -> list[str]:
    lines = []
    for method, effect in measured.items():
        for kind in KINDS:
            group = effect["groups"][kind]
            if group["before"] is not None:
                lines.append(
                    f"{method:8} {kind:9} {100 * group['before']:.2f} % before, {100 * group['after']:.2f} % after"
                )
        before, after, aggregated = (100 * effect["accuracy"][when] for when in ("before", "after", "aggregated"))
        lines.append(f"{method:8} all       {before:.2f} % before, {after:.2f} % after, {aggregated:.2f} % aggregated")
    return [*lines, *_ahead(measured)]


def _ahead(measured: dict[str, Any]) -> list[str]:
    """FedLC minus FedAvg, where the paper says that calibration helps: on missing classes, and after aggregation."""
    plain, calibrated = (measured.get(method) for method in METHODS)
    if not plain or not calibrated or plain["groups"]["missing"]["after"] is None:
        return []
    missing = 100 * (calibrated["groups"]["missing"]["after"] - plain["groups"]["missing"]["after"])
    together = 100 * (calibrated["accuracy"]["aggregated"] - plain["accuracy"]["aggregated"])
    return [f"fedlc - fedavg: {missing:+.2f} points on missing classes after the update, {together:+.2f} aggregated"]


def choose_client_and_classes(counts: Sequence[Sequence[int]]) -> tuple[int, dict[str, int]]:
    """The client, and its majority, minority and missing class, with counts closest to the paper's.

    Smallest |ln(n_majority / 2608)| + |ln(n_minority / 448)| over all clients that have all three kinds; the missing
    class is the first one. Ties go to the first client and classes, so no result influences the choice.
    """
    found = []
    for client, row in enumerate(counts):
        groups = kinds(row)
        if not all(groups.values()):
            continue
        for high in groups["majority"]:
            for low in groups["minority"]:
                far, near = math.log(row[high] / PRINTED["majority"]), math.log(row[low] / PRINTED["minority"])
                found.append((abs(far) + abs(near), client, high, low, groups["missing"][0]))
    if not found:
        raise ValueError("no client has a majority, a minority and a missing class")
    _, client, *classes = min(found)
    return client, dict(zip(KINDS, classes, strict=True))


def features_after(
    simulation: Simulation, client: int, classes: Mapping[str, int], *, per_class: int = 200, **how: Any
) -> dict[str, Any]:
    """`feature_map` of a client's model after the next local update; `how` is for `observe`."""
    seen = observe(simulation, clients=np.array([client]), **how)
    assert seen.update is not None
    return feature_map(seen, seen.update, 0, classes, per_class=per_class)


def features(simulation: Simulation) -> dict[str, Any]:
    federation = simulation.federation
    client, classes = choose_client_and_classes(federation.counts(np.arange(federation.num_clients)).tolist())
    return {method: features_after(simulation, client, classes, algorithm=method, local_epochs=1) for method in METHODS}


def feature_words(measured: dict[str, Any]) -> list[str]:
    lines = [
        f"{method:8} {group['kind']:9} class {group['class']} ({group['count']} examples): "
        f"{100 * group['neighbours']:.1f} % of nearest neighbours are of the same class"
        for method, found in measured.items()
        for group in found["groups"]
    ]
    if set(METHODS) <= set(measured):
        pairs = zip(*(measured[method]["groups"] for method in METHODS), strict=True)
        told = [f"{plain['kind']} {100 * (mine['neighbours'] - plain['neighbours']):+.1f}" for plain, mine in pairs]
        lines.append(f"fedlc - fedavg, points of neighbours: {', '.join(told)}")
    return lines


_PER_CLASS = "Per-class accuracy before and after"
TRAINED = (
    TrainedFigure("figure2", f"{_PER_CLASS} a local update", "local_effect", effects, before_and_after, effect_words),
    TrainedFigure("figure6", f"{_PER_CLASS} aggregation", "local_effect", effects, figure6, effect_words),
    TrainedFigure("figure7", "Features after a local update", "features", features, feature_maps, feature_words),
)
