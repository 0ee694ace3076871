"""A whole cohort in fixed memory, one step of its clients captured as CUDA graphs: one tensor program on a GPU.

Enqueuing a step's kernels may take longer than running them. Here a round is: copy in, replay graphs of one step as
often as the client with the most steps needs, copy out. Which examples a step uses is read from a table on the device
by a step number that the step itself counts up.

Clients are ranked by their number of steps, so that those still at work are always the first ones. There is a graph for
all clients, and others for fewer and fewer of them, made when they are first needed: a step replays the smallest one
that has all clients at work. Others in it compute on, but their results are discarded, so their state does not change
by a bit. On a CPU the same steps run directly, which tests the logic.
"""

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.federation import Cohort, Ints
from fedskew.core.round import Batch, Context, Local, Recipe, Server, Update, begin, finish, join, local_step, take
from fedskew.core.settings import Settings
from fedskew.core.tree import Params
from fedskew.data.augment import EDGE, crop_flip
from fedskew.engine.fixed import captured, cloned, copy, fixed, leaves, same_step
from fedskew.engine.pool import Examples
from fedskew.engine.sheet import Sheet
from fedskew.engine.timetable import Table, Tables, at_work, label_counts, longest_first, most_rows, owners
from fedskew.models import kernels
from fedskew.models.model import Model


def prefixes(lanes: int) -> list[int]:
    """How many clients the graphs have: all, then three quarters of that, and so on down to one."""
    sizes = [lanes]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] * 3 // 4)
    return sizes


def plan(steps: Ints, lanes: int) -> list[int]:
    """The size of the graph for each step of a round in which clients take so many steps."""
    sizes = np.array(prefixes(lanes)[::-1])
    chosen: list[int] = sizes[np.searchsorted(sizes, at_work(steps))].tolist()
    return chosen


def served(model: Model, precision: str, device: torch.device) -> bool:
    """Whether our kernels with a client axis run a model's training steps."""
    return model.together and precision == "bf16" and kernels.run_together(device)


def spread(servers: Sequence[Server], owner: Tensor) -> Server:
    """What each client has received from the server of this number; what a single one has sent broadcasts."""
    sent = join([replace(server, optimizer={}, readout={}) for server in servers], new_axis=True)
    return sent if len(servers) == 1 else take(sent, owner)


@dataclass(frozen=True)
class InPlace(Recipe):
    """A recipe with plain gradient descent that moves clients in place, those that are still at work."""

    active: Tensor | None = None

    def move(self, grads: Params, local: Local, context: Context) -> tuple[Params, Params]:
        from fedskew.models.kernels.descent import descend

        assert self.optimizer.descent is not None
        assert self.rate is not None
        assert self.active is not None
        for name, grad in self.bent(grads, local, context).items():
            descend(
                local.params[name], local.optimizer.get(name), grad, self.rate, self.active, *self.optimizer.descent
            )
        return local.params, local.optimizer


@dataclass
class Rounds:
    """Rounds in fixed memory: of all cohorts at once, or of one after another, each in so many groups of clients."""

    settings: Settings
    groups: int = 0
    lanes: "Lanes | None" = field(default=None, repr=False)
    _tables: Tables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tables = Tables(self.settings)

    def train(
        self,
        recipe: Recipe,
        servers: Sequence[Server],
        cohorts: Sequence[Cohort],
        examples: Examples,
        offsets: Sequence[int],
        round: int,
    ) -> list[Update]:
        """The updates of each cohort. If memory runs out, smaller groups start over: nothing is lost."""
        try:
            if not self.groups:
                updates = self._group(recipe, servers, cohorts, examples, self._tables(cohorts, offsets, round))
                self._tables.prepare(cohorts, offsets, round + 1)  # while the device is busy
                return updates
            joined = list[Update]()
            for server, cohort, offset in zip(servers, cohorts, offsets, strict=True):
                made = list[Update]()
                for part in self._parts(cohort):
                    made += self._group(recipe, [server], [part], examples, self._tables([part], [offset], round))
                joined.append(join(made))
            return joined
        except torch.OutOfMemoryError:
            smaller = 2 * self.groups or (1 if len(cohorts) > 1 else 2)
            if smaller > 1 and max(1, self.groups) >= max(len(cohort.clients) for cohort in cohorts):
                raise
            self.groups, self.lanes = smaller, None
            how = f"clients in {smaller} groups" if smaller > 1 else "one seed after another"
            warnings.warn(f"memory ran out; continuing with {how}", stacklevel=2)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return self.train(recipe, servers, cohorts, examples, offsets, round)

    def _group(
        self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], examples: Examples, table: Table
    ) -> list[Update]:
        if self.lanes is None or not self.lanes.fits(recipe, servers, examples[1], table):
            self.lanes = None  # free its memory first
            self.lanes = Lanes(self.settings, recipe, servers, cohorts, examples, table)
        return self.lanes.play(recipe, servers, cohorts, table)

    def _parts(self, cohort: Cohort) -> list[Cohort]:
        """A cohort's clients in groups, those of the first one as many as any."""
        places = np.array_split(np.arange(len(cohort.clients)), min(self.groups, len(cohort.clients)))
        cuts = [slice(int(part[0]), int(part[-1]) + 1) for part in places]
        return [replace(cohort, clients=cohort.clients[cut], states=tree.rows(cohort.states, cut)) for cut in cuts]


class Lanes:
    """Fixed memory for as many clients as a cohort has, and the graphs of one step."""

    def __init__(
        self,
        settings: Settings,
        recipe: Recipe,
        servers: Sequence[Server],
        cohorts: Sequence[Cohort],
        examples: Examples,
        table: Table,
    ) -> None:
        self.settings, (self.data, self.x, self.y) = settings, examples
        self.source, device, self.lanes = recipe, self.x.device, len(table.steps)
        rows, batch = most_rows(cohorts, settings), table.index.shape[1]
        each = (self.lanes,)
        shapes = {
            "rank": each,  # the cohort's client in each lane
            "lane": each,  # the lane of each of the cohort's clients
            "server": each,
            "first": each,
            "steps": each,
            "counts": (self.lanes, self.data.num_classes),
            "length": (rows,),
            "index": (rows, batch),
            "draws": (rows, batch) if settings.augment else (0, batch),
        }
        self.sheet = Sheet(shapes, device)
        self.column = torch.arange(batch, device=device)
        self.taken = torch.zeros(1, dtype=torch.int64, device=device)
        self.rate = torch.ones((), dtype=settings.dtype, device=device)
        self.recipe = replace(recipe, rate=self.rate)
        self.served = served(recipe.model, settings.precision, device)
        self.one = len(servers) == 1
        self.local, self.context = self._memory(servers[0], cohorts[0])
        self.fresh = leaves(cloned(self.local.optimizer))
        self.stream = torch.cuda.Stream(device) if self.x.is_cuda else None
        self.pool = torch.cuda.graph_pool_handle() if self.x.is_cuda else None
        self.steps: dict[int, Callable[[], None]] = {}
        self.pixels = self._pixels()

    def _memory(self, server: Server, cohort: Cohort) -> tuple[Local, Context]:
        """One row for each client; one server's state broadcasts instead."""

        def rows(trees: Params, count: int = self.lanes) -> Params:
            return tree.map(lambda leaf: leaf.expand(count, *leaf.shape), trees)

        lead = torch.Size([self.lanes])
        local = fixed(begin(self.recipe, rows(server.params), rows(server.buffers), lead))
        shared = 1 if self.one else self.lanes
        client = rows(tree.rows(cohort.states, 0))
        anchor, buffers, correction = (
            cloned(rows(part, shared)) for part in (server.params, server.buffers, server.correction)
        )
        travel = torch.zeros(lead, dtype=torch.float64, device=self.x.device)
        return local, Context(anchor, buffers, cloned(client), correction, self.sheet.tensors["counts"], travel)

    def _pixels(self) -> tuple[Tensor, Tensor] | None:
        """Mean and deviation of each channel, if one kernel can prepare whole batches."""
        images = self.x.dtype == torch.uint8 and self.x.ndim == 4 and self.x.is_contiguous()
        usual = images and self.settings.augment in (None, crop_flip)
        if not (self.served and usual) or self.data.mean is None or self.data.std is None:
            return None
        if not len(self.data.mean) == len(self.data.std) == self.x.shape[1]:
            return None
        mean, std = torch.tensor([self.data.mean, self.data.std], dtype=torch.float32, device=self.x.device)
        return mean, std

    def fits(self, recipe: Recipe, servers: Sequence[Server], x: Tensor, table: Table) -> bool:
        """Whether a round with this table fits here."""
        data = x.data_ptr() == self.x.data_ptr() and table.index.shape[1] == len(self.column)
        room = len(table.steps) <= self.lanes and len(table.length) <= len(self.sheet.tensors["length"])
        return same_step(recipe, self.source) and data and room and self.one == (len(servers) == 1)

    def play(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], table: Table) -> list[Update]:
        """One round; the updates of each cohort, stacked over its clients."""
        sizes = plan(table.steps, self.lanes)
        with torch.no_grad():
            for lanes in dict.fromkeys(sizes):
                self._make(lanes)  # before copying in: capturing takes some steps
            self._copy_in(recipe, servers, cohorts, table)
            for lanes in sizes:
                self.steps[lanes]()
            return self._copy_out(recipe, servers, cohorts)

    def _make(self, lanes: int) -> None:
        """Make the graph of this many lanes, if there is none yet."""
        if self.served and not self.steps:
            from fedskew.models.kernels.launch import compiling

            with compiling():
                self._step(lanes)
        if lanes not in self.steps:
            self.steps[lanes] = captured(lambda: self._step(lanes), self.stream, self.pool, self.taken.zero_)

    def _copy_in(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], table: Table) -> None:
        rank = longest_first(table.steps)
        draws = {} if table.draws is None else {"draws": table.draws}
        self.sheet.write(
            rank=rank, lane=np.argsort(rank), server=owners(cohorts)[rank], counts=label_counts(cohorts)[rank],
            first=table.first[rank], steps=table.steps[rank], length=table.length, index=table.index, **draws,
        )  # fmt: skip
        self.rate.fill_(recipe.optimizer.lr)
        here, there = slice(len(rank)), self.sheet.tensors
        self.context.travel[here] = recipe.travel(torch.from_numpy(table.steps[rank])).to(self.x.device)
        self.taken.zero_()
        self.local.loss.zero_()
        copy(leaves(self.local.optimizer), self.fresh)
        sent = spread(servers, there["server"][here])
        client = tree.rows(tree.concatenate([cohort.states for cohort in cohorts]), there["rank"][here])
        pairs = (
            (self.local.params, sent.params),
            (self.local.buffers, sent.buffers),
            (self.context.client, client),
            (self.context.anchor, sent.params),
            (self.context.buffers, sent.buffers),
            (self.context.server, sent.correction),
        )
        for into, source in pairs:
            rows = tree.rows(into, here)
            copy(leaves(rows), leaves({name: leaf.expand_as(rows[name]) for name, leaf in source.items()}))

    def _copy_out(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort]) -> list[Update]:
        """The final state of each cohort's clients in their order, in memory that the next round does not touch."""
        there, updates, end = self.sheet.tensors, list[Update](), 0
        for server, cohort in zip(servers, cohorts, strict=True):
            begin, end = end, end + len(cohort.clients)
            lane = there["lane"][begin:end]
            counts, travel, steps = (
                part.index_select(0, lane) for part in (there["counts"], self.context.travel, there["steps"])
            )
            anchor, buffers, correction = (
                tree.map(lambda leaf: leaf.unsqueeze(0), part)
                for part in (server.params, server.buffers, server.correction)
            )
            context = Context(anchor, buffers, cohort.states, correction, counts, travel)
            updates.append(finish(recipe, context, take(self.local, lane), steps))
        return updates

    def _step(self, lanes: int) -> None:
        """The next step of the first clients; those of them that have finished keep their state."""
        there, here = self.sheet.tensors, slice(lanes)
        steps = there["steps"][here]
        active = self.taken < steps
        row = there["first"][here] + torch.minimum(self.taken, steps - 1).clamp_(min=0)
        index = there["index"].index_select(0, row)
        mask = self.column < there["length"].index_select(0, row)[:, None]
        images = self._images(index, row)
        batch = Batch(images, self.y.index_select(0, index.view(-1)).view(index.shape), mask)
        local, context = take(self.local, here), take(self.context, here)
        moved = local_step(self._moving(active), context, local, batch)
        with torch.no_grad():
            for into, source in zip(leaves(local), leaves(moved), strict=True):
                if into is not source:
                    torch.where(active.view(-1, *[1] * (into.ndim - 1)), source, into, out=into)
            self.taken.add_(1)

    def _moving(self, active: Tensor) -> Recipe:
        """The recipe of a step, which moves the clients itself where our kernels can."""
        if not self.served or self.recipe.optimizer.descent is None:
            return self.recipe
        own = {each.name: getattr(self.recipe, each.name) for each in fields(Recipe)}
        return InPlace(**own, active=active.view(torch.uint8))

    def _images(self, index: Tensor, row: Tensor) -> Tensor:
        """The images of a step, augmented and normalised."""
        draws = self.sheet.tensors["draws"].index_select(0, row) if self.settings.augment is not None else None
        if self.pixels is not None:
            from fedskew.models.kernels.batches import images

            return images(self.x, index, draws, *self.pixels, EDGE, kernels.product_type(self.pixels[0]))
        stored = self.x.index_select(0, index.view(-1))
        if self.settings.augment is not None and draws is not None:
            stored = self.settings.augment(stored, draws.view(-1))
        return self.data.prepare(stored.view(*index.shape, *self.x.shape[1:]), self.settings.dtype)
