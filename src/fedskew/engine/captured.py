"""A whole cohort in fixed memory, one step of all its clients captured as a CUDA graph: for small models on a GPU.

A round of a small model is many small kernels, and enqueuing them takes longer than running them. Here a round is: copy
in, replay one graph as often as the client with the most steps needs, copy out. Which examples a step uses is read from
a table on the device by a step number that the step itself counts up. A client that has taken all its steps keeps
computing, but its results are discarded, so its state does not change by a bit. On a CPU the same step runs directly,
which tests the logic.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.core.federation import Cohort, Ints
from fedskew.core.round import Batch, Context, Local, Recipe, Server, Update, begin, finish, local_step, take
from fedskew.core.settings import Settings
from fedskew.core.tree import Params
from fedskew.engine.fixed import captured, cloned, copy, fixed, leaves
from fedskew.engine.sheet import Sheet
from fedskew.engine.timetable import Table, most_rows

_IDLE_VALUES = 1 << 26


def worth_capturing(recipe: Recipe, steps: Ints) -> bool:
    """Whether finished clients cost the device less than a step that is not captured costs the host.

    Such a step takes the host about a millisecond, in which the device takes some 2^26 parameters through a step. Both
    are estimates; up to that many may belong to finished clients at an average step.
    """
    idle = len(steps) - steps.sum() / steps.max()
    parameters = sum(leaf.numel() for leaf in recipe.model.module.parameters())
    return recipe.model.takes_mask and bool(idle * parameters <= _IDLE_VALUES)


class Lanes:
    """Fixed memory for as many clients as a cohort has, and the graph of one step of all of them."""

    def __init__(
        self,
        settings: Settings,
        recipe: Recipe,
        servers: Sequence[Server],
        cohorts: Sequence[Cohort],
        examples: tuple[Dataset, Tensor, Tensor],
        table: Table,
    ) -> None:
        self.settings, (self.data, self.x, self.y) = settings, examples
        self.source, device, lanes = recipe, self.x.device, len(table.steps)
        rows, batch = most_rows(cohorts, settings), table.index.shape[1]
        shapes = {
            "first": (lanes,),
            "steps": (lanes,),
            "counts": (lanes, self.data.num_classes),
            "length": (rows,),
            "index": (rows, batch),
            "draws": (rows, batch) if settings.augment else (0, batch),
        }
        self.sheet = Sheet(shapes, device)
        self.column = torch.arange(batch, device=device)
        self.taken = torch.zeros(1, dtype=torch.int64, device=device)
        self.rate = torch.ones((), dtype=settings.dtype, device=device)
        self.recipe = replace(recipe, rate=self.rate)
        self.one = len(servers) == 1
        self.local, self.context = self._memory(servers[0], cohorts[0], lanes)
        self.fresh = leaves(fixed(self.local).optimizer)
        stream = torch.cuda.Stream(device) if self.x.is_cuda else None
        self.step = captured(self._step, stream, reset=self.taken.zero_)

    def _memory(self, server: Server, cohort: Cohort, lanes: int) -> tuple[Local, Context]:
        """One row for each client; one server's state broadcasts instead."""

        def rows(trees: Params, count: int = lanes) -> Params:
            return tree.map(lambda leaf: leaf.expand(count, *leaf.shape), trees)

        local = fixed(begin(self.recipe, rows(server.params), rows(server.buffers), torch.Size([lanes])))
        shared = 1 if self.one else lanes
        client = rows(tree.rows(cohort.states, 0))
        anchor, buffers, correction = (
            cloned(rows(part, shared)) for part in (server.params, server.buffers, server.correction)
        )
        travel = torch.zeros(lanes, dtype=torch.float64, device=self.x.device)
        return local, Context(anchor, buffers, cloned(client), correction, self.sheet.tensors["counts"], travel)

    def fits(self, recipe: Recipe, servers: Sequence[Server], x: Tensor, table: Table) -> bool:
        """Whether a round with this table fits here."""
        same = recipe.model is self.source.model and recipe.algorithm is self.source.algorithm
        data = x.data_ptr() == self.x.data_ptr() and table.index.shape[1] == len(self.column)
        most = self.sheet.tensors["steps"], self.sheet.tensors["length"]
        room = len(table.steps) <= len(most[0]) and len(table.length) <= len(most[1])
        return same and data and room and self.one == (len(servers) == 1)

    def play(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], table: Table) -> list[Update]:
        """One round; the updates of each cohort, stacked over its clients."""
        ends = np.cumsum([len(cohort.clients) for cohort in cohorts]).tolist()
        places = [slice(end - len(cohort.clients), end) for end, cohort in zip(ends, cohorts, strict=True)]
        with torch.no_grad():
            self._copy_in(recipe, servers, cohorts, places, table)
            for _ in range(int(table.steps.max())):
                self.step()
            return [self._copy_out(recipe, *each) for each in zip(servers, cohorts, places, strict=True)]

    def _copy_in(
        self,
        recipe: Recipe,
        servers: Sequence[Server],
        cohorts: Sequence[Cohort],
        places: Sequence[slice],
        table: Table,
    ) -> None:
        counts = np.concatenate([cohort.federation.counts(cohort.clients) for cohort in cohorts])
        draws = {} if table.draws is None else {"draws": table.draws}
        self.sheet.write(
            first=table.first, steps=table.steps, counts=counts, length=table.length, index=table.index, **draws
        )
        self.rate.fill_(recipe.optimizer.lr)
        self.context.travel[: len(table.steps)] = recipe.travel(torch.from_numpy(table.steps)).to(self.x.device)
        self.taken.zero_()
        self.local.loss.zero_()
        copy(leaves(self.local.optimizer), self.fresh)
        for server, cohort, place in zip(servers, cohorts, places, strict=True):
            shared = slice(None) if self.one else place
            into = (
                *(tree.rows(part, place) for part in (self.local.params, self.local.buffers, self.context.client)),
                *(tree.rows(part, shared) for part in (self.context.anchor, self.context.buffers, self.context.server)),
            )
            source = server.params, server.buffers, cohort.states, server.params, server.buffers, server.correction
            for one, other in zip(into, source, strict=True):
                copy(leaves(one), leaves({name: leaf.expand_as(one[name]) for name, leaf in other.items()}))

    def _copy_out(self, recipe: Recipe, server: Server, cohort: Cohort, place: slice) -> Update:
        """The final state of a cohort's clients, in memory that the next round does not touch."""
        there = self.sheet.tensors
        travel = self.context.travel[place].clone()
        state = server.params, server.buffers, cohort.states, server.correction
        context = Context(*state, there["counts"][place], travel)
        update = finish(recipe, context, take(self.local, place), there["steps"][place])
        return replace(update, buffers=tree.map(torch.clone, update.buffers))

    def _step(self) -> None:
        """The next step of every client; clients that have finished keep their state."""
        there, settings = self.sheet.tensors, self.settings
        active = self.taken < there["steps"]
        row = there["first"] + torch.minimum(self.taken, there["steps"] - 1).clamp_(min=0)
        index = there["index"].index_select(0, row)
        mask = self.column < there["length"].index_select(0, row)[:, None]
        images = self.x.index_select(0, index.view(-1))
        if settings.augment is not None:
            images = settings.augment(images, there["draws"].index_select(0, row).view(-1))
        images = self.data.prepare(images.view(*index.shape, *self.x.shape[1:]), settings.dtype)
        batch = Batch(images, self.y.index_select(0, index.view(-1)).view(index.shape), mask)
        moved = local_step(self.recipe, self.context, self.local, batch)
        with torch.no_grad():
            for into, source in zip(leaves(self.local), leaves(moved), strict=True):
                torch.where(active.view(-1, *[1] * (into.ndim - 1)), source, into, out=into)
            self.taken.add_(1)
