"""A local step captured as CUDA graphs, compiled where that pays, several clients in flight on streams of one GPU.

Every slot owns a stream, a client's state in fixed memory, and two graphs of one step: one for full batches, one for
batches with padding. A client is copied into a free slot and its steps are replayed; which examples a step uses is read
from a table on the device by a row number that the step itself counts up, so the host only enqueues. On a CPU the same
slots run their steps directly, which tests the logic.
"""

import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.federation import Cohort
from fedskew.core.own import locating_errors
from fedskew.core.round import Batch, Context, Local, Recipe, Server, Update, begin, finish, join, local_step
from fedskew.core.settings import Settings, arithmetic
from fedskew.core.tree import Params
from fedskew.engine.fixed import captured, cloned, copy, fixed, leaves, same_step
from fedskew.engine.pool import Examples, Pool
from fedskew.engine.timetable import Table, Tables, label_counts, longest_first, most_rows
from fedskew.models import kernels
from fedskew.models.model import Model

_RECIPES = 4096  # compiled in one process before the compiler gives up: a table has hundreds of runs
_PARAMETERS = 32  # most of a module worth compiling: ResNet-18 has 62, takes minutes, and runs no faster compiled
_RUN = 8  # steps in the longer graph: launching a graph costs the host as much as a step costs the device


@dataclass
class Graphed:
    settings: Settings
    slots: int = 8
    _pool: Pool = field(default_factory=Pool, repr=False)
    _stage: "Stage | None" = field(default=None, repr=False)
    _step: tuple[Recipe, Tensor, Any] | None = field(default=None, repr=False)
    _tables: Tables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tables = Tables(self.settings)

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients."""
        if not recipe.model.quiet:
            raise ValueError("graphed needs a Network without dropout; use engine=serial for any other module")
        data, offsets, x, y = self._pool([cohort.federation.dataset for cohort in cohorts])
        table = self._tables(cohorts, offsets, round)
        with arithmetic(self.settings.precision, x.device), locating_errors(recipe, round, cohorts):
            updates = self._played(recipe, servers, cohorts, (data, x, y), table)
            self._tables.prepare(cohorts, offsets, round + 1)  # while the device is busy
            return updates

    def _played(
        self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], examples: Examples, table: Table
    ) -> list[Update]:
        """The round on this stage, or on a smaller one if memory runs out: clients start over, nothing is lost."""
        try:
            if self._stage is None or not self._stage.fits(recipe, table, examples[1]):
                self._stage = None
                self._stage = Stage(self, recipe, servers[0], cohorts, examples, table)
            self._stage.begin_round(recipe, table)
            return self._stage.play(recipe, servers, cohorts, table)
        except torch.OutOfMemoryError:
            if self.slots == 1:
                raise
            self.slots, self._stage = self.slots // 2, None
            warnings.warn(f"memory ran out; continuing with {self.slots} clients in flight", stacklevel=2)
        torch.cuda.synchronize()  # other slots may still be at work
        gc.collect()
        torch.cuda.empty_cache()
        return self._played(recipe, servers, cohorts, examples, table)

    def step(self, recipe: Recipe, device: torch.device) -> tuple[Recipe, Tensor, Any]:
        """A recipe, the learning rate in fixed memory, and the recipe that reads it, compiled once if that pays."""
        if self._step is None or not same_step(recipe, self._step[0]):
            rate = torch.ones((), dtype=self.settings.dtype, device=device)
            quick = may_compile(device, self.settings.precision)
            model = recipe.model.fused() if quick and kernels.available() else recipe.model
            scaled = replace(recipe, model=model, rate=rate)
            self._step = recipe, rate, _quickest(scaled) if quick else scaled
        return self._step


class Stage:
    """Fixed memory for everything that a captured step touches."""

    def __init__(
        self,
        engine: Graphed,
        recipe: Recipe,
        server: Server,
        cohorts: Sequence[Cohort],
        examples: Examples,
        table: Table,
    ) -> None:
        self.settings, (self.data, self.x, self.y) = engine.settings, examples
        x = self.x
        self.before = torch.cuda.memory_reserved(x.device) if x.is_cuda else 0
        self.capacity = most_rows(cohorts, engine.settings)
        width = table.index.shape[1]
        self.index = torch.zeros(self.capacity, width, dtype=torch.int64, device=x.device)
        self.mask = torch.ones(self.capacity, width, dtype=torch.bool, device=x.device)
        self.draws = torch.zeros_like(self.index) if engine.settings.augment else None
        self.source, self.rate, self.recipe = engine.step(recipe, x.device)
        self.slots = [Slot(self, server, cohorts[0])]
        everyone = sum(len(cohort.whole) for cohort in cohorts)  # other rounds may need more
        for _ in range(1, min(engine.slots, everyone, self._room())):
            self.slots.append(Slot(self, server, cohorts[0]))

    def _room(self) -> int:
        """How many slots fit into memory, judged by the first one; a fifth stays free."""
        if not self.x.is_cuda:
            return 2**30
        free, total = torch.cuda.mem_get_info(self.x.device)
        each = max(1, torch.cuda.memory_reserved(self.x.device) - self.before)
        return 1 + max(0, int((free - 0.2 * total) / each))

    def fits(self, recipe: Recipe, table: Table, x: Tensor) -> bool:
        """Whether a round with this table fits here."""
        data = self.x.data_ptr() == x.data_ptr() and table.index.shape[1] == self.index.shape[1]
        return same_step(recipe, self.source) and data and len(table.index) <= self.capacity

    def begin_round(self, recipe: Recipe, table: Table) -> None:
        """Copy the round's table and learning rate to the device."""
        rows = len(table.index)
        self.index[:rows].copy_(torch.from_numpy(table.index), non_blocking=True)
        self.mask[:rows].copy_(torch.from_numpy(table.mask), non_blocking=True)
        if self.draws is not None and table.draws is not None:
            self.draws[:rows].copy_(torch.from_numpy(table.draws), non_blocking=True)
        self.rate.fill_(recipe.optimizer.lr)
        self.steps = torch.from_numpy(table.steps).to(self.x.device)
        self.travel = recipe.travel(torch.from_numpy(table.steps)).to(self.x.device)

    def play(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], table: Table) -> list[Update]:
        """Every client's steps on the slot that is free first, the longest clients first."""
        jobs = [(i, k) for i, cohort in enumerate(cohorts) for k in range(len(cohort.clients))]
        counts = torch.from_numpy(label_counts(cohorts)).to(self.x.device)
        busy = np.zeros(len(self.slots))
        done: dict[tuple[int, int], Update] = {}
        for slot in self.slots:
            slot.wait_for_main()
        for job in longest_first(table.steps).tolist():
            i, k = jobs[job]
            slot = self.slots[int(busy.argmin())]
            busy[busy.argmin()] += table.steps[job]
            server, state = servers[i], tree.rows(cohorts[i].states, k)
            context = Context(server.params, server.buffers, state, server.correction, counts[job], self.travel[job])
            done[i, k] = slot.client(recipe, context, table, job)
        for slot in self.slots:
            slot.main_waits()
        return [
            join([done[i, k] for k in range(len(cohort.clients))], new_axis=True) for i, cohort in enumerate(cohorts)
        ]


class Slot:
    """One client at a time: its state in fixed memory, a stream, and the graphs of one step."""

    def __init__(self, stage: Stage, server: Server, cohort: Cohort) -> None:
        self.stage: Stage = weakref.proxy(stage)  # no reference cycle: graphs are freed with their stage
        cuda = stage.x.is_cuda
        self.stream = torch.cuda.Stream() if cuda else None
        classes = cohort.federation.dataset.num_classes
        counts = torch.ones(classes, dtype=torch.int64, device=stage.x.device)
        states = tree.rows(cohort.states, 0)
        travel = torch.ones((), dtype=torch.float64, device=stage.x.device)
        self.context = fixed(Context(server.params, server.buffers, states, server.correction, counts, travel))
        self.local = fixed(begin(stage.recipe, server.params, server.buffers, torch.Size([])))
        self.fresh = leaves(cloned(self.local.optimizer))
        self.row = torch.zeros(1, dtype=torch.int64, device=stage.x.device)
        pool = torch.cuda.graph_pool_handle() if cuda else None
        self.full = self._captured(1, masked=False, pool=pool)
        self.run = self._captured(_RUN, masked=False, pool=pool)
        self.padded = self._captured(1, masked=True, pool=pool)

    def client(self, recipe: Recipe, context: Context, table: Table, job: int) -> Update:
        """Copy a client in, replay its steps, and take its update out."""
        with torch.cuda.stream(self.stream) if self.stream else nullcontext(), torch.no_grad():
            copy(leaves(self.context), leaves(context))
            copy(leaves(self.local.params), leaves(context.anchor))
            copy(leaves(self.local.buffers), leaves(context.buffers))
            copy(leaves(self.local.optimizer), self.fresh)
            self.local.loss.zero_()
            self.row.fill_(int(table.first[job]))
            rows = slice(table.first[job], table.first[job] + table.steps[job])
            for full, members in groupby(table.full[rows].tolist()):
                steps = sum(1 for _ in members)
                runs, rest = divmod(steps, _RUN) if full else (0, steps)
                for _ in range(runs):
                    self.run()
                for _ in range(rest):
                    (self.full if full else self.padded)()
            return finish(recipe, context, fixed(self.local), self.stage.steps[job])

    def wait_for_main(self) -> None:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def main_waits(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)

    def _step(self, *, masked: bool) -> None:
        stage = self.stage
        rows = stage.index.index_select(0, self.row).view(-1)
        images = stage.x.index_select(0, rows)
        if stage.draws is not None and stage.settings.augment is not None:
            images = stage.settings.augment(images, stage.draws.index_select(0, self.row).view(-1))
        mask = stage.mask.index_select(0, self.row).view(-1) if masked else None
        batch = Batch(stage.data.prepare(images, stage.settings.dtype), stage.y.index_select(0, rows), mask)
        moved = local_step(stage.recipe, self.context, self.local, batch)
        with torch.no_grad():
            pairs = zip(leaves(self.local), leaves(moved), strict=True)
            changed = [(into, source) for into, source in pairs if into is not source]
            copy([into for into, _ in changed], [source for _, source in changed])
            self.row.add_(1)

    def _captured(self, steps: int, *, masked: bool, pool: Any) -> Callable[[], None]:
        """A function that takes some steps: the replay of a graph, or the steps themselves on a CPU."""

        def take() -> None:
            for _ in range(steps):
                self._step(masked=masked)

        return captured(take, self.stream, pool, self.row.zero_ if steps == 1 else None)


def may_compile(device: torch.device, precision: str) -> bool:
    """Whether our kernels and the compiler may be used: they are for GPUs, and our kernels compute in float32."""
    return device.type == "cuda" and precision != "fp64"


def worth_compiling(model: Model) -> bool:
    """Whether compiling pays: with few layers, the many small kernels between them cost as much as the layers, and
    compiling takes seconds.

    Group norm is excluded: its means end up in one kernel with others, which took the compiler over four minutes.
    """
    grouped = any(isinstance(part, torch.nn.GroupNorm) for part in model.module.modules())
    return not grouped and sum(1 for _ in model.module.parameters()) <= _PARAMETERS


def _quickest(recipe: Recipe) -> "Recipe | Compiled":
    if worth_compiling(recipe.model):
        return Compiled(recipe)
    if recipe.optimizer.descent is None:
        return recipe
    return Moving(**{each.name: getattr(recipe, each.name) for each in fields(Recipe)})


@dataclass(frozen=True)
class Moving(Recipe):
    """A recipe with plain gradient descent that moves all parameters in place, in one pass over memory."""

    def move(self, grads: Params, local: Local, context: Context) -> tuple[Params, Params]:
        assert self.optimizer.descent is not None
        assert self.rate is not None
        momentum, decay = self.optimizer.descent
        grads = self.bent(grads, local, context)
        along = [_laid_like(leaf, grads[name]) for name, leaf in local.params.items()]
        velocities = [local.optimizer[name] for name in local.params] if momentum else []
        torch._fused_sgd_(
            list(local.params.values()), along, velocities, weight_decay=decay, momentum=momentum, lr=self.rate,
            dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip
        return local.params, local.optimizer


def _laid_like(leaf: Tensor, grad: Tensor) -> Tensor:
    """The gradient in the memory layout of its parameter."""
    return grad if grad.stride() == leaf.stride() else torch.empty_like(leaf).copy_(grad)


def compiler_options() -> dict[str, Any]:
    """One kernel for all parameters instead of one each, and as few kernels as possible chosen by timing."""
    from torch._inductor import config  # slow to import

    wanted = {"combo_kernels": True, "combo_kernels_autotune": 0, "deterministic": True}
    return {name: value for name, value in wanted.items() if hasattr(config, name)}


class Compiled:
    """A recipe with both halves of a step compiled by torch.compile; the second one works in place."""

    def __init__(self, recipe: Recipe) -> None:
        def move_in_place(grads: Params, local: Local, context: Context) -> None:
            params, optimizer = recipe.move(grads, local, context)
            for name, leaf in params.items():
                local.params[name].copy_(leaf)
            for name, leaf in optimizer.items():
                local.optimizer[name].copy_(leaf)

        torch._dynamo.config.recompile_limit = _RECIPES
        torch._dynamo.config.accumulated_recompile_limit = _RECIPES
        self.optimizer, self.ascents = recipe.optimizer, recipe.ascents
        for model in (recipe.model, recipe.model.evaluating):
            model.settle()
        options = compiler_options()
        self.losses = torch.compile(recipe.losses, dynamic=False, options=options)
        self._move = torch.compile(move_in_place, dynamic=False, options=options)

    def move(self, grads: Params, local: Local, context: Context) -> tuple[Params, Params]:
        self._move(grads, local, context)
        return local.params, local.optimizer
