"""Which examples every client of a cohort uses at every step, as one array.

Clients are ranked by their number of steps, so those still at work at step t are always the first `active[t]`: no
step is spent on a client that has finished. A short batch is filled up with the client's own first example and
masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedskew.federation import Cohort, Ints


@dataclass(frozen=True)
class Schedule:
    rank: Ints  # the cohort's clients, most steps first
    steps: Ints  # their numbers of steps
    active: Ints  # [T] how many of them take step t
    index: Ints  # [sum(active), B] examples, step after step
    mask: NDArray[np.bool_]  # the same shape: False is padding
    full: NDArray[np.bool_]  # [T] whether no batch of step t has padding


def schedule(cohorts: Sequence[Cohort], offsets: Sequence[int], round: int, epochs: int, batch_size: int) -> Schedule:
    """The schedule of several cohorts together; `offsets` say where each one's data set begins in the pool."""
    sizes = np.concatenate([c.federation.sizes(c.clients) for c in cohorts])
    first = np.concatenate(
        [c.federation.order[c.federation.offsets[c.clients]] + o for c, o in zip(cohorts, offsets, strict=True)]
    )
    samples = np.concatenate(
        [c.federation.shuffled(c.clients, c.seed, round, epochs) + o for c, o in zip(cohorts, offsets, strict=True)]
    )
    width = min(batch_size, int(sizes.max()))
    per_epoch = -(-sizes // batch_size)
    steps = epochs * per_epoch
    rank = np.argsort(-steps, kind="stable")
    active = len(steps) - np.searchsorted(np.sort(steps), np.arange(steps.max()), side="right")
    first_row = np.cumsum(active) - active

    place = np.empty_like(rank)
    place[rank] = np.arange(len(rank))
    row_rank = np.arange(active.sum()) - np.repeat(first_row, active)
    index = np.repeat(first[rank[row_rank]][:, None], width, axis=1)
    mask = np.zeros(index.shape, dtype=np.bool_)

    lengths = np.repeat(sizes, epochs)
    within = np.arange(len(samples)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    start = (np.arange(epochs) * per_epoch[:, None]).ravel()  # the first step of each client's each epoch
    step = np.repeat(start, lengths) + within // batch_size
    row = first_row[step] + np.repeat(np.repeat(place, epochs), lengths)
    column = within % batch_size
    index[row, column], mask[row, column] = samples, True
    full = np.logical_and.reduceat(mask.all(axis=1), first_row)
    return Schedule(rank, steps[rank], active, index, mask, full)
