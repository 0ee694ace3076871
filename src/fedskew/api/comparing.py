"""A comparison of several runs, for Python programs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.api.simulated import Simulated, Style, data_frame, drawn, rows_of, table_text
from fedskew.core.checks import check_number
from fedskew.progress import round_progress
from fedskew.report.comparison import method_curves
from fedskew.runs.given import with_specs
from fedskew.runs.measures import Reach, rounds_to_reach
from fedskew.runs.run import Run, check_seeds
from fedskew.runs.store import Store
from fedskew.runs.summary import setting_text
from fedskew.runs.verdict import BASELINE
from fedskew.simulation.compare import Comparison
from fedskew.simulation.session import simulate_groups
from fedskew.simulation.traffic import BytesSent

_SEEDS_AND_METHODS = {"seed", "algorithm"}


class Several:
    """Finished runs by name, those of one name in order of seeds. Printing it shows the table."""

    def __init__(self, runs: dict[str, list[Simulated]]) -> None:
        self.runs = runs

    def __getitem__(self, name: str) -> list[Simulated]:
        if name not in self.runs:
            raise KeyError(f"{name} is not among these runs; allowed: {'; '.join(self.runs)}")
        return self.runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def table(self, style: Style = "markdown") -> str:
        raise NotImplementedError

    @property
    def bytes_sent(self) -> dict[str, list[BytesSent]]:
        """For each name, what the federation of each seed would have sent."""
        return {name: [run.bytes_sent for run in seeds] for name, seeds in self.runs.items()}

    def __str__(self) -> str:
        return self.table()

    def _repr_markdown_(self) -> str:
        return self.table()


class Compared(Several):
    """Finished runs by method: `compared["fedlc"]` lists its runs in order of seeds. Printing it shows the table.
    Verdicts and differences are against the `baseline`."""

    def __init__(self, runs: dict[str, list[Simulated]], baseline: str = BASELINE) -> None:
        super().__init__(runs)
        self.baseline = baseline

    def rows(self, target: float | None = None) -> list[dict[str, Any]]:
        """One row per method: measures with mean and std over seeds, the verdict, rounds to a target."""
        return rows_of(self.runs, target, self.baseline)

    def table(self, style: Style = "markdown", target: float | None = None) -> str:
        """The rows as text. Rounds are counted to `target`, or to the baseline's final accuracy."""
        return table_text(self.runs, style, target, self.baseline)

    def plot(self, axes: Any = None, measure: str = "accuracy") -> Any:
        """A curve per method, the mean over its seeds, in a new Matplotlib figure or on the given axes."""
        return drawn(self.runs, axes, measure)

    def rounds_to(self, accuracy: float) -> dict[str, Reach | None]:
        """How many rounds each method takes to reach this accuracy, the median over its seeds; None if all diverged."""
        check_number("accuracy", accuracy, 0, 1, above=True)
        finished = {name: [run.finished for run in seeds] for name, seeds in self.runs.items()}
        return {name: rounds_to_reach(curves, accuracy) for name, curves in method_curves(finished).items()}

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each method and seed."""
        return data_frame([{"method": name, **run.summary} for name, seeds in self.runs.items() for run in seeds])


def compare(
    runs: Run | Sequence[Run],
    algorithms: Sequence[Any] | None = None,
    *,
    seeds: int = 1,
    store: Store | Path | str | None = None,
    baseline: Any = None,
    progress: bool = False,
) -> Compared:
    """Simulate several runs to the end: one run with each of several algorithms, or a list of runs.

    Each is simulated with `seeds` seeds, starting at its own. Under one seed methods share data, split, initial model
    and cohorts. With a store, or its folder, finished rounds are read instead of computed again. Verdicts are against
    FedAvg, or against the `baseline`, which is one of the methods. With `progress` a bar shows how far they are.
    """
    comparison = _comparison(runs, algorithms, seeds)
    judged_by = BASELINE if baseline is None else comparison.name_of(baseline)
    return Compared(simulated(comparison.groups, Store.of(store), progress=progress), judged_by)


def simulated(
    groups: Sequence[tuple[str, list[Run]]], store: Store | None, *, progress: bool
) -> dict[str, list[Simulated]]:
    """All runs, simulated to the end, by the names of their groups; with `progress` under a bar."""
    made = {name: [Simulated(run, iter(()), store) for run in runs] for name, runs in groups}
    at = {(name, one.run.seed): one for name, seeds in made.items() for one in seeds}
    with round_progress(sum(run.rounds for _, runs in groups for run in runs), enabled=progress) as step:
        for name, run, record in simulate_groups(groups, store):
            at[name, run.seed].note(record)
            step(name, record)
    return made


def fields_of(run: Run | Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were set in a run or are in a mapping, with specs in place of objects."""
    if isinstance(run, Run):
        return run.given
    if not isinstance(run, Mapping):
        raise TypeError(f"{run!r} is not a run; write Run(dataset=..., rounds=...), or a mapping of such fields")
    return with_specs(dict(run))


def listed(name: str, given: Any, allowed: str) -> Sequence[Any]:
    """Several values; a text is none, though Python would take its letters."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(f"{name} is {given!r}; allowed: {allowed}")
    return given


def listed_methods(given: Any) -> Sequence[Any]:
    return listed("algorithms", given, 'a list of methods, for example ["fedavg", "fedlc"]')


def listed_values(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each name, with specs in place of objects."""
    every = {name: listed(name, given, "a list of values") for name, given in values.items()}
    return {name: [with_specs({name: value})[name] for value in given] for name, given in every.items()}


def _comparison(runs: Run | Sequence[Run], algorithms: Sequence[Any] | None, seeds: int) -> Comparison:
    if isinstance(runs, Run):
        return Comparison.of(runs, [runs.algorithm] if algorithms is None else listed_methods(algorithms), seeds)
    if algorithms is not None:
        raise ValueError("algorithms are for a single run; in a list, each run has its own algorithm")
    if not runs or not all(isinstance(run, Run) for run in runs):
        raise ValueError(f"runs is {runs!r}; allowed: a Run with algorithms=[...], or a list of runs")
    check_seeds(seeds)
    fields = [run.model_dump() for run in runs]
    differing = [
        name for name in fields[0] if name not in _SEEDS_AND_METHODS and len({str(one[name]) for one in fields}) > 1
    ]
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        shown = {**run.model_dump(), **run.short}
        name = setting_text({"algorithm": run.short_algorithm, **{field: shown[field] for field in differing}})
        found = grouped.setdefault(name, [])
        found += [run.model_copy(update={"seed": run.seed + more}) for more in range(seeds)]
        if len({one.seed for one in found}) < len(found):
            raise ValueError(f"{name} with seed {run.seed} appears twice; compared runs need different names")
    return Comparison(grouped)
