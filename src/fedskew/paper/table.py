"""A table of the paper: cells by methods, our figures next to the printed ones."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from importlib import resources
from itertools import groupby, product
from typing import Any

from fedskew.paper.choice import STAND_IN, Choice, chosen, standing_in
from fedskew.runs.measures import IID, gap_closed, rounds_to_reach
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from fedskew.runs.verdict import BASELINE, paired
from fedskew.simulation.tune import VALIDATION

SEVEN = ("fedavg", "fedprox", "scaffold", "fednova", "fedopt", "fedrs", "fedlc")
EIGHT = (*SEVEN, "fedla")
"""The paper's methods, and logit adjustment, which it does not have."""
BEYOND = (
    "scaffold:mean=uniform", "fedlc:travel=1", "fedavgm", "fedavgm:beta=0.5", "fedexp", "fedacg", "feddyn", "fedcm",
    "fedntd", "fedlc+fedavgm", "fedlc+fedavgm:beta=0.5", "fedla+fedavgm:beta=0.5", "fedlc+fedacg", "fedlc+feddyn",
    "fedlc+fedcm", "fedlc+fedopt", "fedla+fedacg", "feddecorr", "fedlc+feddecorr:beta=0.01", "fedvls", "fedsam",
    "fedgc", "fedlc+fedgc", "refit", "fedlc+refit", "fedla+refit", "fedlc+fedacg+refit", "fedla+fedacg+refit",
)  # fmt: skip
"""Later methods, and SCAFFOLD by its paper's own rule (messages and updates weighted differently): shown next to the
paper's methods if they have been run, and run only when named."""

CNN_ASSUMED = (
    "local epochs: 1",
    "tau, mu, alpha and the server's step: our defaults",
    "model: three convolutions of 128",
)
Fields = Mapping[str, Any]
_SHORT = 50
"""Runs of fewer rounds are evaluated ten times, longer ones every ten rounds."""
_SHOWN = ("dataset", "model", "local_epochs", "momentum", "lr", "batch_size", "clients")
EVERYTHING, NOTHING = Choice(), Results()


def cells_of(datasets: Iterable[str], splits: Iterable[str]) -> dict[str, Fields]:
    """A cell `data set/split` for each pair."""
    return {f"{data}/{split}": {"dataset": data, "partition": split} for data, split in product(datasets, splits)}


@lru_cache
def printed(item: str) -> dict[str, dict[str, list[float | None]]]:
    """The paper's own figures, in percent: method, cell, [mean, standard deviation]."""
    text = resources.files("fedskew.paper").joinpath("printed.json").read_text()
    figures: dict[str, dict[str, list[float | None]]] = json.loads(text)[item]
    return figures


@dataclass(frozen=True)
class Table:
    """`cells` are what a column stands for, as fields of a run; `assumed` is what the paper does not state, and
    `remark` what a reader of our figures should know."""

    name: str
    title: str
    cells: Mapping[str, Fields]
    methods: tuple[str, ...]
    fields: Fields
    assumed: tuple[str, ...] = ()
    remark: str = ""
    beyond: tuple[str, ...] = ()

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """The runs that can be known now; if a choice depends on other results, ask again when those exist."""
        return [run for cell, method in self.pairs(choice) for run in self._wanted(cell, method, choice, results)]

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """A row for each cell and method: the printed figure, ours, and the runs behind it. All rows of a cell have one
        arithmetic: the requested one, else the most frequent. They also have one length: the requested one, else the
        one with most runs, on a tie the longest."""
        found = []
        named = chosen("method", choice.methods, (*self.methods, *self.beyond))
        methods = [one for one in named if one in self.methods or not choice.profile.tries]  # later ones have no tries
        for cell in chosen("cell", choice.cells, self.cells):
            found += in_one_arithmetic(results, choice, partial(self._cell, cell, methods, choice))
        return [row for row in found if row["ours"] or row["method"] in self.methods]

    def pairs(self, choice: Choice) -> Iterator[tuple[str, str]]:
        methods = chosen("method", choice.methods, (*self.methods, *self.beyond)) if choice.methods else self.methods
        return ((c, m) for c in chosen("cell", choice.cells, self.cells) for m in methods)

    def run(self, cell: str, method: str, choice: Choice, algorithm: str | None = None, **more: Any) -> Run:
        """The first seed's run of a cell; `algorithm` is a variant to run in place of the method."""
        dataset = STAND_IN if choice.stand_in else {**self.fields, **self.cells[cell]}["dataset"]
        profile = choice.profile.fields_for(dataset)
        fields = {**self.fields, **profile, **self.cells[cell], **choice.fields}
        fields["algorithm"] = algorithm or choice.profile.methods.get(method, method)
        if choice.stand_in:
            fields = standing_in(fields)
        if choice.rounds is not None:
            fields["rounds"] = choice.rounds
        fields.setdefault("eval_every", 10 if fields["rounds"] >= _SHORT else max(1, fields["rounds"] // 10))
        return _made(json.dumps({**fields, **more}, default=str))

    def full_rounds(self, cell: str) -> int:
        """How many rounds the paper gives this cell."""
        return int({**self.fields, **self.cells[cell]}["rounds"])

    def _wanted(self, cell: str, method: str, choice: Choice, results: Results) -> list[Run]:
        """The tries of a method as long as one of them is missing, else its run for each seed."""
        if choice.rounds is not None and choice.rounds > self.full_rounds(cell):
            raise ValueError(
                f"rounds is {choice.rounds}; allowed: at most the paper's, {self.full_rounds(cell)} for {cell}"
            )
        settled: str | None = None
        tries = self._tries(cell, method, choice)
        if tries and (settled := best_try(tries, results.only(tries[0].precision))) is None:
            return tries
        run = self.run(cell, method, choice, settled)
        return [run.model_copy(update={"seed": run.seed + s}) for s in range(choice.seeds)]

    def _tries(self, cell: str, method: str, choice: Choice) -> list[Run]:
        variants = choice.profile.tries.get(method, ())
        return [self.run(cell, method, choice, algorithm=text, validation=VALIDATION) for text in variants]

    def _cell(self, cell: str, methods: Sequence[str], choice: Choice, results: Results) -> list[dict[str, Any]]:
        full = self.full_rounds(cell)
        asked = {method: self._asked(cell, method, choice, results) for method in {*methods, BASELINE}}
        found = {method: [] if run is None else results.answering(run) for method, run in asked.items()}
        rounds = choice.rounds or commonest_length((found[method] for method in methods), full)
        base, rows = Finished.of(results, asked[BASELINE], rounds), []
        for method in methods:
            row = self._row(cell, method, choice, answer(found[method], full, rounds))
            if row["ours"] is not None:
                row["ours"] |= Finished.of(results, asked[method], rounds).measures(base, choice.target)
            run = asked[method]
            rows.append({**row, "other_versions": 0 if run is None else results.of_other_versions(run)})
        return rows

    def _asked(self, cell: str, method: str, choice: Choice, results: Results) -> dict[str, Any] | None:
        """The run of a cell's first seed; None if a method's tries have not settled it yet."""
        settled = self._settled(cell, method, choice, results)
        if method in choice.profile.tries and settled is None:
            return None
        return self.run(cell, method, choice, settled).model_dump()

    def _row(self, cell: str, method: str, choice: Choice, ours: dict[str, Any] | None) -> dict[str, Any]:
        mean, std = (None, None) if choice.stand_in else printed(self.name).get(method, {}).get(cell, (None, None))
        difference = None if ours is None or ours["mean"] is None or mean is None else ours["mean"] - mean
        shown = {"cell": cell, "method": method, "printed": {"mean": mean, "std": std}, "stand_in": choice.stand_in}
        return {**shown, "ours": ours, "difference": difference}

    def _settled(self, cell: str, method: str, choice: Choice, results: Results) -> str | None:
        """What a method's tries settled, from the longest complete set."""
        tries = self._tries(cell, method, choice)
        lengths = {result.rounds for run in tries[:1] for result in results.answering(run.model_dump())}
        for rounds in sorted(lengths, reverse=True) if choice.rounds is None else [choice.rounds]:
            if settled := best_try([run.model_copy(update={"rounds": rounds}) for run in tries], results):
                return settled
        return None

    def settled(self, choice: Choice, results: Results) -> bool:
        """Whether everything that this depends on exists."""
        tried = [tries for c, m in self.pairs(choice) if (tries := self._tries(c, m, choice))]
        return all(best_try(tries, results.only(tries[0].precision)) for tries in tried)


@dataclass(frozen=True)
class Finished:
    """The runs of a method in a cell, of one length, by seed: on the cell's split, and on an IID one."""

    skewed: Mapping[int, Result]
    iid: Mapping[int, Result]

    @classmethod
    def of(cls, results: Results, run: dict[str, Any] | None, rounds: int | None) -> "Finished":
        """The results of a run over all seeds."""
        if run is None or rounds is None:
            return cls({}, {})
        level = [] if run["partition"] == "natural" else results.answering({**run, "partition": IID})
        skewed, iid = (
            {result.seed: result for result in found if result.rounds == rounds}
            for found in (results.answering(run), level)
        )
        return cls(skewed, iid)

    def measures(self, base: "Finished", target: float | None) -> dict[str, Any]:
        """Against FedAvg in the same cell: the gain in points of the last ten rounds, here and on IID data, rounds to
        the target, and the share of the IID gap closed; None if the runs for it are missing."""
        mine, plain, level = (
            {seed: result.curve for seed, result in found.items() if not result.diverged}
            for found in (self.skewed, base.skewed, base.iid)
        )
        reach, share = rounds_to_reach(mine, plain if target is None else target), gap_closed(mine, plain, level)
        gains = [
            None if self == base else paired(_ends(one), _ends(other))
            for one, other in ((self.skewed, base.skewed), (self.iid, base.iid))
        ]
        found = {"gain": gains[0], "iid_gain": gains[1], "rounds_to_reach": reach, "gap_closed": share}
        return {name: None if value is None else asdict(value) for name, value in found.items()}


def _ends(found: Mapping[int, Result]) -> dict[int, float | None]:
    return {seed: None if result.diverged else end(result) for seed, result in found.items()}


def end(result: Result) -> float:
    """Accuracy at a run's end, in percent."""
    return 100 * float(result.summary["accuracy_last10"])


def commonest_length(found: Iterable[Sequence[Result]], full: int) -> int | None:
    """The number of rounds that most runs have, on a tie the largest; no longer than the paper's."""
    lengths = Counter(result.rounds for group in found for result in group if result.rounds <= full)
    return max(lengths, key=lambda length: (lengths[length], length), default=None)


def in_one_arithmetic(
    results: Results, choice: Choice, rows: Callable[[Results], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Rows from results of one arithmetic: the requested one, else the one that gives most rows."""
    asked = choice.fields.get("precision")
    precisions: list[str | None] = [asked] if asked else [*results.precisions] or [None]
    views = [rows(results.only(precision)) for precision in precisions]
    return max(views, key=lambda found: sum(row.get("ours", row) is not None for row in found))


def best_try(tries: Sequence[Run], results: Results) -> str | None:
    """The variant with the highest accuracy on held-out examples, on a tie the first; None while one is missing."""
    found = [results.exactly(run.model_dump()) for run in tries]
    if not tries or not all(found):
        return None
    scores = [0.0 if one[0].diverged else one[0].summary["validation_accuracy"] for one in found]
    return tries[max(range(len(tries)), key=lambda i: scores[i])].algorithm


def answer(found: Sequence[Result], full: int, rounds: int | None = None) -> dict[str, Any] | None:
    """Our figure in percent over seeds, of the `longest` runs. A seed that diverged is counted separately."""
    group = longest(found, full, rounds)
    if not group:
        return None
    first, finished = group[0], [result for result in group if not result.diverged]
    fine, ends = [result.summary for result in finished], [end(result) for result in finished]
    values = [100 * summary["accuracy"] for summary in fine]
    seconds = [result.summary["seconds"] for result in group]
    return {
        "mean": _mean(values),
        "each": values,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "last_ten": _mean(ends),
        "each_last_ten": ends,
        "balanced": _mean([100 * summary["balanced_accuracy"] for summary in fine]),
        "client_mean": _mean([100 * s["client_accuracy"] for s in fine if s.get("client_accuracy") is not None]),
        "seeds": [result.seed for result in group],
        "diverged": {result.seed: result.summary["rounds"] for result in group if result.diverged},
        "rounds": first.rounds,
        "other_lengths": sorted({r.rounds for r in found if r.rounds <= full} - {first.rounds}),
        "shortened": first.rounds < full,
        "precision": first.precision,
        "device": ", ".join(dict.fromkeys(result.device for result in group)),
        "algorithm": first.short["algorithm"],
        "resolved": first.run["algorithm"],
        **{name: first.run[name] for name in _SHOWN},
        "partitions": [str(result.summary["partition_hash"])[:16] for result in group],
        "hashes": [result.hash for result in group],
        "seconds": None if None in seconds else round(sum(seconds), 1),
    }


def longest(found: Sequence[Result], full: int, rounds: int | None = None) -> list[Result]:
    """Runs of different length are never averaged: those of the requested length count, or else the longest (no longer
    than the paper's)."""
    groups = {n: group for n, group in by_length(found).items() if n <= full and rounds in (None, n)}
    return groups[max(groups)] if groups else []


def by_length(found: Sequence[Result]) -> dict[int, list[Result]]:
    """Results that may be averaged, if they are of one arithmetic: those of the same number of rounds."""
    ordered = sorted(found, key=lambda result: (result.rounds, result.seed))
    return {length: list(group) for length, group in groupby(ordered, lambda result: result.rounds)}


@cache
def _made(fields: str) -> Run:
    """A run from its fields as JSON: pages ask for each one many times, and checking it takes long."""
    return Run(**json.loads(fields))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
