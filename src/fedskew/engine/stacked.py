"""A cohort, and several seeds of it, as one tensor program: parameters [K, ...], batches [K, B, ...].

On a GPU its steps are replayed from CUDA graphs (captured.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.core.federation import Cohort
from fedskew.core.own import locating_errors
from fedskew.core.pulse import meter
from fedskew.core.round import Batch, Context, Recipe, Server, Update, begin, finish, join, take
from fedskew.core.settings import Settings, arithmetic, threads_for
from fedskew.core.tree import Params
from fedskew.engine.captured import Rounds, spread
from fedskew.engine.fixed import same_step
from fedskew.engine.pool import Pool
from fedskew.engine.recorded import Recordings
from fedskew.engine.timetable import Schedule, label_counts, owners, schedule
from fedskew.engine.trial import capturable

_CHUNK_VALUES = 1 << 20


@dataclass
class Stacked:
    settings: Settings
    captured: bool | None = None
    """Whether steps are captured; None leaves it to the device."""
    _pool: Pool = field(default_factory=Pool, repr=False)
    recordings: Recordings = field(default_factory=Recordings, repr=False)
    _rounds: Rounds = field(init=False, repr=False)
    _tried: tuple[Recipe, bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._rounds = Rounds(self.settings)

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients."""
        if not recipe.model.stackable:
            raise ValueError("stacked cannot run a module with its own batch norm or dropout; use engine=serial")
        data = cohorts[0].federation.dataset
        clients = sum(len(cohort.clients) for cohort in cohorts)
        with (
            arithmetic(self.settings.precision, data.x_train.device),
            threads_for(recipe, self.settings, clients),
            locating_errors(recipe, round, cohorts),
        ):
            return self._train(recipe, servers, cohorts, round)

    def _train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        data, offsets, x, y = self._pool([cohort.federation.dataset for cohort in cohorts])
        if self._captures(recipe, servers[0], data, x):
            return self._rounds.train(recipe, servers, cohorts, (data, x, y), offsets, round)
        plan = schedule(cohorts, offsets, round, self.settings)
        rank, place = (torch.from_numpy(part).to(x.device) for part in (plan.rank, np.argsort(plan.rank)))
        travel = recipe.travel(torch.from_numpy(plan.steps)).to(x.device)
        steps = torch.from_numpy(plan.steps).to(x.device)
        context = _context(servers, cohorts, travel.index_select(0, place))
        ranked = _ranked(context, rank)
        params, buffers = _for_each(ranked.anchor, len(rank)), _for_each(ranked.buffers, len(rank))
        batches = self._batches(plan, data, x, y)

        tick, step = meter(len(plan.active)), self.recordings.step(recipe)

        local, now, done = begin(recipe, params, buffers, steps.shape), ranked, []
        for active, batch in zip(plan.active.tolist(), batches, strict=True):
            if active < len(local.loss):
                done.append(take(local, slice(active, None)))
                local, now = take(local, slice(active)), take(ranked, slice(active))
            local = step(recipe, now, local, batch)
            tick()
        ended = take(join([replace(part, optimizer={}) for part in (local, *reversed(done))]), place)
        everyone = finish(recipe, context, ended, steps.index_select(0, place))
        ends = np.cumsum([0, *(len(cohort.clients) for cohort in cohorts)]).tolist()
        return [take(everyone, slice(*own)) for own in pairwise(ends)]

    def _captures(self, recipe: Recipe, server: Server, data: Dataset, x: Tensor) -> bool:
        if not (recipe.model.takes_mask and (x.is_cuda if self.captured is None else self.captured)):
            return False
        if self._tried is None or not same_step(recipe, self._tried[0]):
            self._tried = recipe, capturable(recipe, server, data)
        return self._tried[1]

    def _batches(self, plan: Schedule, data: Dataset, x: Tensor, y: Tensor) -> Iterator[Batch]:
        """The batches of every step. Small ones are gathered for several steps at a time."""
        index, mask = torch.from_numpy(plan.index).to(x.device), torch.from_numpy(plan.mask).to(x.device)
        rows = 1 + _CHUNK_VALUES // (index.shape[1] * x[0].numel())
        ends = np.cumsum(plan.active)
        cuts = (np.flatnonzero(np.diff(ends // rows)) + 1).tolist()
        for first, last in pairwise([0, *cuts, len(ends)]):
            active, full = plan.active[first:last].tolist(), plan.full[first:last].tolist()
            chunk = slice(ends[last - 1] - sum(active), ends[last - 1])
            shape, flat = index[chunk].shape, index[chunk].flatten()
            stored = x.index_select(0, flat)
            if self.settings.augment is not None and plan.draws is not None:
                stored = self.settings.augment(stored, torch.from_numpy(plan.draws[chunk].ravel()).to(x.device))
            images = data.prepare(stored.view(*shape, *x.shape[1:]), self.settings.dtype).split(active)
            labels, masks = y.index_select(0, flat).view(shape).split(active), mask[chunk].split(active)
            for step in range(last - first):
                yield Batch(images[step], labels[step], None if full[step] else masks[step])


def _context(servers: Sequence[Server], cohorts: Sequence[Cohort], travel: Tensor) -> Context:
    """What each client starts from, in the order of the cohorts. One server's state broadcasts instead."""
    owner, counts = (torch.from_numpy(part).to(travel.device) for part in (owners(cohorts), label_counts(cohorts)))
    sent, client = spread(servers, owner), tree.concatenate([cohort.states for cohort in cohorts])
    return Context(sent.params, sent.buffers, client, sent.correction, counts, travel)


def _ranked(context: Context, rank: Tensor) -> Context:
    """The same for clients in order of rank."""

    def own(leaf: Tensor) -> Tensor:
        return leaf if len(leaf) == 1 else leaf.index_select(0, rank)

    trees = context.anchor, context.buffers, context.client, context.server
    anchor, statistics, client, correction = (tree.map(own, part) for part in trees)
    return Context(anchor, statistics, client, correction, own(context.counts), own(context.travel))


def _for_each(shared: Params, clients: int) -> Params:
    return tree.map(lambda leaf: leaf.expand(clients, *leaf.shape[1:]), shared)
