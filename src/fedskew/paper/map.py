"""The map: what FedLC's gain over FedAvg depends on, around one cell of the paper, with one seed.

First the margin itself, tau for each rule for missing classes, in two settings; then, with the margin that did best
over both on held-out training examples, one assumption changed at a time. Choices use the held-out examples; the test
set is only reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedskew.core.spec import family, name_in
from fedskew.paper import map_text
from fedskew.paper.choice import Choice
from fedskew.paper.map_figure import map_figure
from fedskew.paper.map_text import DENOMINATOR, RULES
from fedskew.paper.table import Table, in_one_arithmetic
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from fedskew.runs.summary import mean_words
from fedskew.simulation.tune import VALIDATION

TAUS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
RIVALS = ("fedavg", "fedrs")
PARTS = ("margin", "around")


@dataclass(frozen=True)
class Setting:
    """A setting that the margin is varied in; `shorter` is how many times fewer rounds it gets."""

    name: str
    fields: Mapping[str, Any]
    shorter: int = 1


BASES = (
    Setting("E=1", {"local_epochs": 1}),
    Setting("E=10, momentum 0.9", {"local_epochs": 10, "momentum": 0.9}, shorter=5),
)
ROUNDS = 100
UNCHANGED = Setting(map_text.UNCHANGED, {})


def around(run: Run) -> list[Setting]:
    """One assumption changed at a time; those of the network only if the network has them."""
    settings = [
        UNCHANGED,
        Setting("local epochs 5", {"local_epochs": 5}, shorter=5),
        Setting("momentum 0.9", {"momentum": 0.9}),
        Setting("lr 0.03", {"lr": 0.03}),
        Setting("lr 0.1", {"lr": 0.1}),
        Setting("crops and mirror images", {"augment": "crop_flip"}),
        Setting("half of the clients a round", {"clients_per_round": max(1, run.clients // 2)}),
    ]
    if run.model.startswith("cnn"):
        settings += [Setting("group norm", {"model": "cnn:norm=group"}), Setting("no norm", {"model": "cnn:norm=none"})]
    if run.partition.startswith("dirichlet"):
        settings.append(Setting("Dirichlet sizes not balanced", {"partition": f"{run.short['partition']},balance=off"}))
    return settings


@dataclass(frozen=True)
class Map:
    """The map around `cell` of `table`. Without `taus`, it shows the usual ones that exist in both settings."""

    table: Table
    cell: str
    taus: tuple[float, ...] = ()
    parts: tuple[str, ...] = PARTS

    def runs(self, choice: Choice, results: Results) -> list[Run]:
        """The runs of the requested parts, as far as they can be known now."""
        wanted: list[Run] = []
        if "margin" in self.parts:
            for base in BASES:
                wanted += [self.run(base, text, choice) for text in (*RIVALS, *margins(self.taus or TAUS))]
        if "around" in self.parts and (best := self._chosen(choice, results)):
            for setting in self.settings(choice):
                wanted += [self.run(setting, text, choice) for text in (*RIVALS, best) if setting != UNCHANGED]
            wanted.append(self.run(UNCHANGED, f"{best},denominator=others", choice))
        return wanted

    def settled(self, choice: Choice, results: Results) -> bool:
        """Whether everything that this depends on exists."""
        return "around" not in self.parts or self._chosen(choice, results) is not None

    def _chosen(self, choice: Choice, results: Results) -> str | None:
        """The best of the requested margins, in the arithmetic of the requested runs."""
        own = results.only(self.run(BASES[0], "fedavg", choice).precision)
        return self.best(choice, own, self.taus or TAUS)

    def rows(self, results: Results, choice: Choice) -> list[dict[str, Any]]:
        """One row per existing run, all of one arithmetic."""
        return in_one_arithmetic(results, choice, partial(self._rows, choice))

    def _rows(self, choice: Choice, results: Results) -> list[dict[str, Any]]:
        taus = self.known_taus(choice, results)
        texts = (*RIVALS, *margins(taus))
        found = [self._row("margin", base, text, choice, results) for base in BASES for text in texts]
        if best := self.best(choice, results, taus):
            for setting in self.settings(choice):
                found += [self._row("around", setting, text, choice, results) for text in (*RIVALS, best)]
            printed = replace(UNCHANGED, name=DENOMINATOR)
            found.append(self._row("around", printed, f"{best},denominator=others", choice, results))
        return [row for row in found if row is not None]

    def known_taus(self, choice: Choice, results: Results) -> tuple[float, ...]:
        """The values of tau that can be shown: those that exist with both rules in both settings."""

        def known(tau: float) -> bool:
            runs = [self.run(base, text, choice) for base in BASES for text in margins((tau,))]
            return all(results.exactly(run.model_dump()) for run in runs)

        return self.taus or tuple(tau for tau in TAUS if known(tau))

    def best(self, choice: Choice, results: Results, taus: Sequence[float]) -> str | None:
        """The margin with the highest accuracy on held-out examples, summed over both settings, once all exist."""
        scores: dict[str, float] = dict.fromkeys(margins(taus), 0.0)
        for text in scores:
            for base in BASES:
                row = self._row("margin", base, text, choice, results)
                if row is None:
                    return None
                scores[text] += row["validation"]
        return max(scores, key=lambda text: scores[text], default=None)

    def settings(self, choice: Choice) -> list[Setting]:
        settings = around(self.table.run(self.cell, "fedavg", choice))
        return [s for s in settings if "augment" not in s.fields] if choice.stand_in else settings

    def run(self, setting: Setting, algorithm: str, choice: Choice) -> Run:
        rounds = max(1, (choice.rounds or ROUNDS) // setting.shorter)
        own = replace(choice, rounds=rounds)
        return self.table.run(self.cell, "fedavg", own, algorithm=algorithm, validation=VALIDATION, **setting.fields)

    def _row(self, part: str, setting: Setting, text: str, choice: Choice, results: Results) -> dict[str, Any] | None:
        found = results.exactly(self.run(setting, text, choice).model_dump())
        if not found:
            return None
        return {"part": part, "setting": setting.name, "algorithm": text, **_figures(found[0])}

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
        """The margin as heat maps, the rest as dots."""
        first, mean = rows[0], mean_words(row["rounds"] for row in rows)
        title = f"FedLC against FedAvg around {self.cell}, {mean}, one seed, {first['precision']}"
        lengths = " and ".join(map(str, sorted({row["rounds"] for row in rows})))
        stand_in = "" if self.cell.startswith(name_in(first["dataset"])) else f"STAND-IN DATA: {first['dataset']}; "
        heat = [panel for base in BASES if (panel := _panel(base, rows)) is not None]
        return map_figure(path, heat, _differences(rows), title, f"{stand_in}shortened: {lengths} rounds")


def margins(taus: Sequence[float]) -> list[str]:
    return [f"fedlc:tau={tau:g},missing={rule}" for rule in RULES for tau in taus]


def _panel(base: Setting, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    here = {r["algorithm"]: r["last_ten"] for r in rows if r["part"] == "margin" and r["setting"] == base.name}
    plain = here.get("fedavg")
    taus = [tau for tau in TAUS if any(text in here for text in margins((tau,)))]
    if plain is None:
        return None
    found = [[here.get(f"fedlc:tau={tau:g},missing={rule}") for tau in taus] for rule in RULES]
    difference = [[_gain(value, plain) for value in row] for row in found]
    return {"title": base.name, "taus": taus, "missing": list(RULES), "difference": difference}


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """FedLC's and FedRS's gain over FedAvg, setting by setting."""
    found: dict[str, dict[str, float | None]] = {}
    for row in rows:
        if row["part"] == "around":
            found.setdefault(row["setting"], {})[row["method"]] = row["last_ten"]
    varied = []
    for setting, here in found.items():
        plain = (found.get(UNCHANGED.name, {}) if setting == DENOMINATOR else here).get("fedavg")
        gains = {method: _gain(here.get(method), plain) for method in ("fedlc", "fedrs")}
        varied.append({"name": setting, "differences": gains})
    return varied


def _gain(value: float | None, plain: float | None) -> float | None:
    return None if value is None or plain is None else value - plain


def _figures(result: Result) -> dict[str, Any]:
    """Accuracies in percent; a run that diverged has none."""
    measures = {"test": "accuracy", "last_ten": "accuracy_last10", "balanced": "balanced_accuracy"}
    test = {name: None if result.diverged else 100 * result.summary[key] for name, key in measures.items()}
    return {
        "method": family(result.short["algorithm"]),
        "validation": 0.0 if result.diverged else 100 * result.summary["validation_accuracy"],
        **test,
        "diverged": result.summary["rounds"] if result.diverged else None,
        "rounds": result.rounds,
        "precision": result.precision,
        "device": result.device,
        "seed": result.seed,
        "dataset": result.short["dataset"],
        "hash": result.hash,
    }
