"""Which runs an item of the paper still needs, in which groups and order."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Protocol

from fedskew.paper.choice import Choice
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.store import Store, StoreError
from fedskew.runs.verdict import FEWEST
from fedskew.simulation.session import finished_records


def together(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups of runs that differ only in their seed, without duplicates."""
    once = list(dict.fromkeys(runs))
    return [list(group) for _, group in groupby(once, lambda run: run.model_copy(update={"seed": 0}))]


def share(groups: Sequence[list[Run]], shard: str) -> list[list[Run]]:
    """The groups of share k for `k/n`. A group's share depends only on its own run, so the shares are disjoint and
    cover everything."""
    k, slash, n = shard.partition("/")
    if not (slash and k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise ValueError(f"shard is {shard!r}; allowed: k/n with k from 1 to n, for example 3/8")
    return [group for group in groups if int(group[0].model_copy(update={"seed": 0}).hash, 16) % int(n) == int(k) - 1]


class Item(Protocol):
    """A table, a figure or the map: the runs it needs may depend on existing results."""

    def runs(self, choice: Choice, results: Results) -> list[Run]: ...


def missing(
    item: Item, choice: Choice, shard: str, store: Store, published: Path | None, failed: Collection[Run]
) -> list[list[Run]]:
    """The runs that an item needs, that are not finished in the store, and that have not failed before. Ask again when
    they are done. Published results settle choices that other runs depend on, but do not count as done, so that they
    can be repeated.
    """
    wanted = share(together(item.runs(choice, Results(store, published))), shard)
    left = [[run for run in group if run not in failed and not _finished(run, store)] for group in wanted]
    return [group for group in left if group]


def _finished(run: Run, store: Store) -> bool:
    """Whether a run is finished; an unreadable run is not, and is reported when its turn comes."""
    folder = store.folder(run.hash)
    with suppress(StoreError):
        return folder.exists() and run.rounds in folder.lengths() and bool(finished_records(run, folder))
    return False


def by_need(groups: Sequence[list[Run]]) -> list[list[Run]]:
    """Every run separately: all first seeds, then method by method the others that a verdict needs, then more."""
    runs = [run for group in groups for run in group]
    return [[run] for run in sorted(runs, key=lambda run: (run.seed > 0) + (run.seed >= FEWEST))]
