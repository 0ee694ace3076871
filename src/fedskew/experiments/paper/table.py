"""A table of the paper: cells by methods, ours beside the printed figure."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import groupby
from typing import Any

from fedskew.experiments.paper.choice import Choice, chosen, standing_in
from fedskew.experiments.paper.profiles import VALIDATION
from fedskew.experiments.results import Result, Results
from fedskew.experiments.run import RESULT_VERSION, Run

SEVEN = ("fedavg", "fedprox", "scaffold", "fednova", "fedopt", "fedrs", "fedlc")
EIGHT = (*SEVEN, "fedla")
"""The paper's methods, and logit adjustment, which it does not have."""

Fields = Mapping[str, Any]
EVERYTHING, NOTHING = Choice(), Results(RESULT_VERSION)


@lru_cache
def printed(item: str) -> dict[str, dict[str, list[float | None]]]:
    """The paper's own figures, in percent: method, cell, [mean, standard deviation]."""
    text = resources.files("fedskew.experiments.paper").joinpath("printed.json").read_text()
    figures: dict[str, dict[str, list[float | None]]] = json.loads(text)[item]
    return figures


@dataclass(frozen=True)
class Table:
    """`cells` are what a column stands for, as fields of a run; `assumed` is what the paper does not say about it."""

    name: str
    title: str
    cells: Mapping[str, Fields]
    methods: tuple[str, ...]
    fields: Fields
    assumed: tuple[str, ...] = ()

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """The runs that can be known now; where a choice hangs on others' results, ask again when those are there."""
        return [run for cell, method in self.pairs(choice) for run in self._wanted(cell, method, choice, results)]

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """A row for each cell and method: the printed figure, ours, and what ours rests on."""
        return [self._row(cell, method, choice, results) for cell, method in self.pairs(choice)]

    def pairs(self, choice: Choice) -> Iterator[tuple[str, str]]:
        methods = chosen("method", choice.methods, self.methods)
        return ((c, m) for c in chosen("cell", choice.cells, self.cells) for m in methods)

    def run(self, cell: str, method: str, choice: Choice, **more: Any) -> Run:
        """The first seed's run of a cell."""
        fields = {"eval_every": 10, **self.fields, **choice.profile.fields, **self.cells[cell], **choice.fields}
        fields["algorithm"] = choice.profile.methods.get(method, method)
        if choice.stand_in:
            fields = standing_in(fields)
        if choice.rounds is not None:
            fields["rounds"] = choice.rounds
        return Run(**{**fields, **more})

    def full_rounds(self, cell: str) -> int:
        """How many rounds the paper gives this cell."""
        return int({**self.fields, **self.cells[cell]}["rounds"])

    def _wanted(self, cell: str, method: str, choice: Choice, results: Results) -> list[Run]:
        """The tries of a method as long as one of them is missing, else its run for each seed."""
        tries = self._tries(cell, method, choice)
        if any(_measured(results, run) is None for run in tries):
            return tries
        settled = best_try(tries, results)
        run = self.run(cell, method, choice, **({"algorithm": settled} if settled else {}))
        return [run.model_copy(update={"seed": run.seed + s}) for s in range(choice.seeds)]

    def _tries(self, cell: str, method: str, choice: Choice) -> list[Run]:
        variants = choice.profile.tries.get(method, ())
        return [self.run(cell, method, choice, algorithm=text, validation=VALIDATION) for text in variants]

    def _row(self, cell: str, method: str, choice: Choice, results: Results) -> dict[str, Any]:
        mean, std = [None, None] if choice.stand_in else printed(self.name).get(method, {}).get(cell, [None, None])
        tries = self._tries(cell, method, choice)
        settled = best_try(tries, results)
        row: dict[str, Any] = {"cell": cell, "method": method, "printed": {"mean": mean, "std": std}}
        if tries and settled is None:
            return {**row, "ours": None, "difference": None, "other_versions": 0}
        run = self.run(cell, method, choice, **({"algorithm": settled} if settled else {}))
        asked = run.model_dump()
        ours = answer(results.answering(asked), self.full_rounds(cell), choice.rounds)
        difference = None if ours is None or ours["mean"] is None or mean is None else round(ours["mean"] - mean, 4)
        return {**row, "ours": ours, "difference": difference, "other_versions": results.of_other_versions(asked)}


def best_try(tries: Sequence[Run], results: Results) -> str | None:
    """The variant with the highest accuracy on held-out examples, the first of equals; None while one is missing."""
    scores = [_measured(results, run) for run in tries]
    if not tries or any(score is None for score in scores):
        return None
    return tries[max(range(len(tries)), key=lambda i: (scores[i] or 0.0, -i))].algorithm


def _measured(results: Results, run: Run) -> float | None:
    """Accuracy on held-out examples of a finished run of at least this length; a diverged one has 0."""
    found = [r for r in results.answering(run.model_dump()) if r.rounds == run.rounds and r.run["seed"] == run.seed]
    return max((0.0 if r.summary["diverged"] else r.summary["validation_accuracy"] for r in found), default=None)


def answer(found: Sequence[Result], full: int, rounds: int | None = None) -> dict[str, Any] | None:
    """Our figure in percent over seeds. Runs of different length or arithmetic are never averaged: the longest group
    counts (no longer than the paper's), then the one with most seeds."""
    groups = by_length(found)
    allowed = [group for (length, _), group in groups.items() if length <= full and rounds in (None, length)]
    if not allowed:
        return None
    group = max(allowed, key=lambda results: (results[0].rounds, len(results)))
    fine = [100 * r.summary["accuracy"] for r in group if not r.summary["diverged"]]
    balanced = [100 * r.summary["balanced_accuracy"] for r in group if not r.summary["diverged"]]
    last_ten = [100 * r.summary["accuracy_last10"] for r in group if not r.summary["diverged"]]
    run = group[0].run
    return {
        "mean": _mean(fine),
        "std": round(statistics.stdev(fine), 4) if len(fine) > 1 else None,
        "balanced": _mean(balanced),
        "last_ten": _mean(last_ten),
        "seeds": [r.run["seed"] for r in group],
        "diverged": {r.run["seed"]: r.summary["rounds"] for r in group if r.summary["diverged"]},
        "rounds": group[0].rounds,
        "shortened": group[0].rounds < full,
        "precision": run["precision"],
        "device": group[0].where,
        "algorithm": group[0].short["algorithm"],
        "resolved": run["algorithm"],
        "model": group[0].short["model"],
        "local_epochs": run["local_epochs"],
        "momentum": run["momentum"],
        "lr": run["lr"],
        "batch_size": run["batch_size"],
        "clients": run["clients"],
        "partitions": [str(r.summary["partition_hash"])[:16] for r in group],
        "hashes": [r.hash for r in group],
        "seconds": round(sum(r.summary["seconds"] for r in group), 1),
    }


def by_length(found: Sequence[Result]) -> dict[tuple[int, str], list[Result]]:
    """Results that may be averaged: same number of rounds, same arithmetic."""

    def key(result: Result) -> tuple[int, str]:
        return result.rounds, result.run["precision"]

    return {k: sorted(group, key=lambda r: r.run["seed"]) for k, group in groupby(sorted(found, key=key), key)}


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None
