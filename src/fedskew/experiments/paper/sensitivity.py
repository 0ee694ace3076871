"""The map: which assumptions lift FedLC above FedAvg or push it below, around one cell of the paper.

First the margin itself, tau by rule for missing classes, in two settings; then, with the margin that did best over both
on held-out training examples, one assumption changed at a time. Choices are made on those, the test set is reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.paper.profiles import VALIDATION
from fedskew.experiments.paper.table import Table
from fedskew.experiments.results import Result, Results
from fedskew.experiments.run import Run
from fedskew.report.map_figure import map_figure

TAUS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
RULES = ("floor", "mask")
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
UNCHANGED = Setting("nothing changed", {})


def around(fields: Mapping[str, Any]) -> list[Setting]:
    """One assumption changed at a time."""
    split, clients = str(fields["partition"]), int(fields["clients"])
    settings = [
        UNCHANGED,
        Setting("local epochs 5", {"local_epochs": 5}, shorter=5),
        Setting("momentum 0.9", {"momentum": 0.9}),
        Setting("lr 0.03", {"lr": 0.03}),
        Setting("lr 0.1", {"lr": 0.1}),
        Setting("group norm", {"model": "cnn:norm=group"}),
        Setting("no norm", {"model": "cnn:norm=none"}),
        Setting("crops and mirror images", {"augment": "crop_flip"}),
        Setting("half of the clients a round", {"clients_per_round": max(1, clients // 2)}),
    ]
    if split.startswith("dirichlet"):
        settings.append(Setting("Dirichlet sizes not balanced", {"partition": f"{split},balance=off"}))
    return settings


@dataclass(frozen=True)
class Map:
    """Around `cell` of `table`."""

    table: Table
    cell: str
    taus: tuple[float, ...] = TAUS
    parts: tuple[str, ...] = PARTS

    def runs(self, choice: Choice, results: Results) -> list[Run]:
        """The runs of the parts asked for, as far as they can be known now."""
        wanted: list[Run] = []
        if "margin" in self.parts:
            for base in BASES:
                wanted += [self.run(base, text, choice) for text in (*RIVALS, *self.margins())]
        if "around" in self.parts and (best := self.best(choice, results)):
            for setting in self.settings(choice):
                wanted += [self.run(setting, text, choice) for text in (*RIVALS, best) if setting != UNCHANGED]
            wanted.append(self.run(UNCHANGED, f"{best},denominator=others", choice))
        return wanted

    def rows(self, results: Results, choice: Choice) -> list[dict[str, Any]]:
        """One row per run that is there."""
        found = []
        for base in BASES:
            for text in (*RIVALS, *self.margins()):
                found.append(self._row("margin", base, text, choice, results))
        best = self.best(choice, results)
        for setting in self.settings(choice) if best else ():
            found += [self._row("around", setting, text, choice, results) for text in (*RIVALS, str(best))]
        if best:
            printed = replace(UNCHANGED, name="denominator as printed")
            found.append(self._row("around", printed, f"{best},denominator=others", choice, results))
        return [row for row in found if row is not None]

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
        """The margin as heat maps, the rest as dots."""
        own = [row for row in rows if row["seed"] == rows[0]["seed"]]
        title = f"FedLC against FedAvg on {self.cell}, one seed, {rows[0]['precision']}"
        heat = [panel for base in BASES if (panel := self._panel(base, own)) is not None]
        lengths = sorted({row["rounds"] for row in own})
        return map_figure(path, heat, _differences(own), title, f"{' and '.join(map(str, lengths))} rounds")

    def _panel(self, base: Setting, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        here = {r["algorithm"]: r["test"] for r in rows if r["part"] == "margin" and r["setting"] == base.name}
        plain = here.get("fedavg")
        if plain is None:
            return None

        def gain(tau: float, rule: str) -> float | None:
            test = here.get(f"fedlc:tau={tau:g},missing={rule}")
            return None if test is None else round(test - plain, 2)

        difference = [[gain(tau, rule) for tau in self.taus] for rule in RULES]
        return {"title": base.name, "taus": list(self.taus), "missing": list(RULES), "difference": difference}

    def settings(self, choice: Choice) -> list[Setting]:
        fields = {**self.table.fields, **self.table.cells[self.cell]}
        settings = around(fields)
        return [s for s in settings if "model" not in s.fields] if choice.stand_in else settings

    def margins(self) -> list[str]:
        return [f"fedlc:tau={tau:g},missing={rule}" for rule in RULES for tau in self.taus]

    def best(self, choice: Choice, results: Results) -> str | None:
        """The margin with the highest accuracy on held-out examples, summed over both settings, once all are there."""
        scores: dict[str, float] = dict.fromkeys(self.margins(), 0.0)
        for text in scores:
            for base in BASES:
                row = self._row("margin", base, text, choice, results)
                if row is None:
                    return None
                scores[text] += row["validation"]
        return max(scores, key=lambda text: scores[text], default=None)

    def run(self, setting: Setting, algorithm: str, choice: Choice) -> Run:
        rounds = max(1, (choice.rounds or ROUNDS) // setting.shorter)
        own = replace(choice, rounds=rounds, fields={**setting.fields, **choice.fields})
        return self.table.run(self.cell, "fedavg", own, algorithm=algorithm, validation=VALIDATION)

    def _row(self, part: str, setting: Setting, text: str, choice: Choice, results: Results) -> dict[str, Any] | None:
        run = self.run(setting, text, choice)
        found = [r for r in results.answering(run.model_dump()) if r.rounds == run.rounds and r.run["seed"] == run.seed]
        if not found:
            return None
        return {"part": part, "setting": setting.name, "algorithm": text, **_figures(found)}


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each rival's and FedLC's gain over FedAvg, setting by setting."""
    around = [row for row in rows if row["part"] == "around" and row["test"] is not None]
    tests: dict[str, dict[str, float]] = {}
    for row in around:
        tests.setdefault(row["setting"], {})[row["method"]] = row["test"]
    usual = tests.get(UNCHANGED.name, {}).get("fedavg")
    varied = []
    for setting, found in tests.items():
        plain = found.get("fedavg", usual)
        gains = {m: None if plain is None or m not in found else round(found[m] - plain, 2) for m in ("fedlc", "fedrs")}
        varied.append({"name": setting, "value": "", "differences": gains})
    return varied


def _figures(found: Sequence[Result]) -> dict[str, Any]:
    """Accuracies in percent; a run that diverged has none."""
    result = found[0]
    gone = result.summary["diverged"]
    return {
        "method": result.short["algorithm"].partition(":")[0],
        "validation": 0.0 if gone else round(100 * result.summary["validation_accuracy"], 2),
        "test": None if gone else round(100 * result.summary["accuracy"], 2),
        "balanced": None if gone else round(100 * result.summary["balanced_accuracy"], 2),
        "diverged": result.summary["rounds"] if gone else None,
        "rounds": result.rounds,
        "precision": result.run["precision"],
        "device": result.where,
        "seed": result.run["seed"],
        "hash": result.hash,
    }
