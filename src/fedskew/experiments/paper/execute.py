"""Many runs, one after another, the seeds of one method together; what fails is reported and the rest goes on."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.results import Results
from fedskew.experiments.run import RESULT_VERSION, Run
from fedskew.experiments.store import Store
from fedskew.simulation import RoundRecord, finished_records, simulate_many


@dataclass(frozen=True)
class Problem:
    """A group of runs that could not be done, and why."""

    runs: tuple[Run, ...]
    reason: str


def together(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ in their seed only, each run once."""
    once = list(dict.fromkeys(runs))
    return [list(group) for _, group in groupby(once, lambda run: run.model_copy(update={"seed": 0}))]


def share(groups: Sequence[list[Run]], shard: str) -> list[list[Run]]:
    """Every n-th group, beginning with the k-th, for `k/n`: shares are disjoint and together everything."""
    k, slash, n = shard.partition("/")
    if not (slash and k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise ValueError(f"shard is {shard!r}; allowed: k/n with k from 1 to n, for example 3/8")
    return list(groups[int(k) - 1 :: int(n)])


class Item(Protocol):
    """A table, a figure, the map: what it needs may hang on what is there already."""

    def runs(self, choice: Choice, results: Results) -> list[Run]: ...


def missing(
    item: Item, choice: Choice, shard: str, store: Store, published: Path | None, failed: Collection[Run]
) -> list[list[Run]]:
    """What an item needs, is not finished in the store, and has not failed before. Ask again when it is done.

    Published results settle what others hang on; they are not taken for done, so that they can be done again.
    """
    wanted = share(together(item.runs(choice, Results(RESULT_VERSION, store, published))), shard)
    left = [[run for run in group if run not in failed and not _finished(run, store)] for group in wanted]
    return [group for group in left if group]


def _finished(run: Run, store: Store) -> bool:
    folder = store.folder(run.hash)
    return folder.exists() and bool(finished_records(run, folder))


def execute(groups: Sequence[list[Run]], store: Store) -> Iterator[tuple[Run, RoundRecord] | Problem]:
    """Every record of every run, or the problem that a group had."""
    for group in groups:
        try:
            for position, record in simulate_many(group, store=store):
                yield group[position], record
        except Exception as error:
            yield Problem(tuple(group), str(error) or type(error).__name__)
