"""Which examples every client of a cohort uses at every step, as arrays.

A short batch is filled up with its own last example and masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.core.federation import Cohort, Federation, Ints
from fedskew.core.settings import Settings

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Schedule:
    """Step after step. Clients are ranked by their number of steps, so those still at work at step t are always the
    first `active[t]`: no step is spent on a client that has finished."""

    rank: Ints  # the cohort's clients, most steps first
    steps: Ints  # their numbers of steps
    active: Ints  # [T] how many of them take step t
    index: Ints  # [sum(active), B] examples, step after step
    mask: Mask  # the same shape: False is padding
    full: Mask  # [T] whether no batch of step t has padding
    draws: Ints | None  # the shape of index: a random integer for each use of an example


@dataclass(frozen=True)
class Table:
    """Client after client: client j uses the rows `first[j]` to `first[j] + steps[j]`."""

    first: Ints
    steps: Ints
    index: Ints  # [sum(steps), B]
    length: Ints  # [sum(steps)] how many examples of a row are not padding
    draws: Ints | None

    @cached_property
    def mask(self) -> Mask:
        return np.asarray(np.arange(self.index.shape[1]) < self.length[:, None])

    @cached_property
    def full(self) -> Mask:
        """Whether a row has no padding."""
        return np.asarray(self.length == self.index.shape[1])


def schedule(cohorts: Sequence[Cohort], offsets: Sequence[int], round: int, settings: Settings) -> Schedule:
    """The schedule of several cohorts together; `offsets` say where each one's data set begins in the pool."""
    steps = local_steps(cohorts, settings)
    rank = longest_first(steps)
    active = at_work(steps)
    first_row = np.cumsum(active) - active
    step = np.repeat(np.arange(len(active)), active)
    client = rank[np.arange(len(step)) - first_row[step]]
    index, length, draws = _rows(cohorts, offsets, round, settings, client, step)
    column = np.arange(index.shape[1])
    full = np.logical_and.reduceat(length == len(column), first_row)
    return Schedule(rank, steps[rank], active, index, column < length[:, None], full, draws)


def longest_first(steps: Ints) -> Ints:
    """The clients that take so many steps, those with most of them first."""
    return np.argsort(-steps, kind="stable")


def at_work(steps: Ints) -> Ints:
    """How many clients that take so many steps are still at work at each of them."""
    return len(steps) - np.searchsorted(np.sort(steps), np.arange(steps.max()), side="right")


def client_table(cohorts: Sequence[Cohort], offsets: Sequence[int], round: int, settings: Settings) -> Table:
    """The same, client after client, every row as wide as the widest batch that any client of the federation has."""
    steps = local_steps(cohorts, settings)
    first = np.cumsum(steps) - steps
    client = np.repeat(np.arange(len(steps)), steps)
    width = min(settings.batch_size, max(int(np.diff(c.federation.offsets).max()) for c in cohorts))
    index, length, draws = _rows(
        cohorts, offsets, round, settings, client, np.arange(len(client)) - first[client], width
    )
    return Table(first, steps, index, length, draws)


@dataclass
class Tables:
    """Client tables; the last one is kept, so that the next round's can be made while the device is busy."""

    settings: Settings
    _last: tuple[Any, Table, list[Federation]] | None = field(default=None, repr=False)

    def __call__(self, cohorts: Sequence[Cohort], offsets: Sequence[int], round: int) -> Table:
        clients = [(id(c.federation), c.seed, c.clients.tobytes()) for c in cohorts]
        key = round, list(offsets), clients
        if self._last is None or self._last[0] != key:
            table = client_table(cohorts, offsets, round, self.settings)
            self._last = key, table, [c.federation for c in cohorts]  # kept, so that no other gets its id
        return self._last[1]

    def prepare(self, cohorts: Sequence[Cohort], offsets: Sequence[int], round: int) -> None:
        """Make the table of a later round, if the same clients are certain to take part."""
        if all(len(cohort.whole) == cohort.federation.num_clients for cohort in cohorts):
            self(cohorts, offsets, round)


def most_rows(cohorts: Sequence[Cohort], settings: Settings) -> int:
    """The longest that such cohorts' tables can get: when each of them draws its largest clients."""
    total = 0
    for cohort in cohorts:
        sizes = np.sort(np.diff(cohort.federation.offsets))[-len(cohort.whole) :]
        total += int(settings.steps(sizes).sum())
    return total


def local_steps(cohorts: Sequence[Cohort], settings: Settings) -> Ints:
    """How many steps each client takes."""
    return settings.steps(np.concatenate([cohort.federation.sizes(cohort.clients) for cohort in cohorts]))


def owners(cohorts: Sequence[Cohort]) -> Ints:
    """The number of each client's cohort."""
    return np.repeat(np.arange(len(cohorts)), [len(cohort.clients) for cohort in cohorts])


def label_counts(cohorts: Sequence[Cohort]) -> Ints:
    """The label counts of each client, [K, C]."""
    return np.concatenate([cohort.federation.counts(cohort.clients) for cohort in cohorts])


def _rows(
    cohorts: Sequence[Cohort],
    offsets: Sequence[int],
    round: int,
    settings: Settings,
    client: Ints,
    step: Ints,
    width: int | None = None,
) -> tuple[Ints, Ints, Ints | None]:
    """For each pair of a client and one of its steps: the examples used, how many are not padding, and their draws."""
    epochs, batch_size = settings.epochs, settings.batch_size
    sizes = np.concatenate([c.federation.sizes(c.clients) for c in cohorts])
    samples = np.concatenate(
        [c.federation.shuffled(c.clients, c.seed, round, epochs) + o for c, o in zip(cohorts, offsets, strict=True)]
    )
    epoch, batch = np.divmod(step, -(-sizes // batch_size)[client])
    begin = (np.cumsum(epochs * sizes) - epochs * sizes)[client] + epoch * sizes[client] + batch * batch_size
    length = np.minimum(batch_size, sizes[client] - batch * batch_size)
    use = begin[:, None] + np.minimum(np.arange(width or length.max()), length[:, None] - 1)
    draws = None
    if settings.augment:
        draws = np.concatenate([c.federation.draws(c.clients, c.seed, round, epochs) for c in cohorts])[use]
    return samples[use], length, draws
