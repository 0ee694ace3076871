"""Which examples every client of a cohort uses at every step, as one array.

Clients are ranked by their number of steps, so those still at work at step t are always the first `active[t]`: no
step is spent on a client that has finished. A short batch is filled up with its own last example and masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedskew.engine.settings import Settings
from fedskew.federation import Cohort, Ints


@dataclass(frozen=True)
class Schedule:
    rank: Ints  # the cohort's clients, most steps first
    steps: Ints  # their numbers of steps
    active: Ints  # [T] how many of them take step t
    index: Ints  # [sum(active), B] examples, step after step
    mask: NDArray[np.bool_]  # the same shape: False is padding
    full: NDArray[np.bool_]  # [T] whether no batch of step t has padding
    draws: Ints | None  # the shape of index: a random integer for each use of an example


def schedule(cohorts: Sequence[Cohort], offsets: Sequence[int], round: int, settings: Settings) -> Schedule:
    """The schedule of several cohorts together; `offsets` say where each one's data set begins in the pool."""
    epochs, batch_size = settings.epochs, settings.batch_size
    sizes = np.concatenate([c.federation.sizes(c.clients) for c in cohorts])
    samples = np.concatenate(
        [c.federation.shuffled(c.clients, c.seed, round, epochs) + o for c, o in zip(cohorts, offsets, strict=True)]
    )
    per_epoch = -(-sizes // batch_size)
    steps = epochs * per_epoch
    rank = np.argsort(-steps, kind="stable")
    active = len(steps) - np.searchsorted(np.sort(steps), np.arange(steps.max()), side="right")
    first_row = np.cumsum(active) - active

    step = np.repeat(np.arange(len(active)), active)
    client = rank[np.arange(len(step)) - first_row[step]]
    epoch, batch = np.divmod(step, per_epoch[client])
    begin = (np.cumsum(epochs * sizes) - epochs * sizes)[client] + epoch * sizes[client] + batch * batch_size
    length = np.minimum(batch_size, sizes[client] - batch * batch_size)[:, None]
    column = np.arange(length.max())
    use = begin[:, None] + np.minimum(column, length - 1)
    full = np.logical_and.reduceat(length[:, 0] == len(column), first_row)
    draws = None
    if settings.augment:
        draws = np.concatenate([c.federation.draws(c.clients, c.seed, round, epochs) for c in cohorts])[use]
    return Schedule(rank, steps[rank], active, samples[use], column < length, full, draws)
