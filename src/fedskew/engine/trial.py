"""A trial before round 1: whether an engine gives the user's own parts the same results as one client alone has.

Where clients run together, a part may mix them up. Where batches are padded, one that looks at a whole batch sees
copies of its last example. Where clients run in any order, none may draw random numbers; and a step that reads a number
from a tensor cannot be captured.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedskew.core import rng, tree
from fedskew.core.dataset import Dataset
from fedskew.core.own import own_parts
from fedskew.core.round import Batch, Context, Recipe, Server, begin, finish, local_step, take
from fedskew.core.settings import kernels_of
from fedskew.core.tree import Params

_FEW, _MANY = 3, 128
_CLOSE = 1e-3
_RATE = 2.0**20
"""So large that a parameter after a step is the step: no digits of it are lost."""
_READING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

_WAITING = torch.ops.aten.lift_fresh, torch.ops.aten._linalg_check_errors
"""Python's numbers brought to a device, and the success of a decomposition read from it: no tag says so."""
_COPIES = torch.ops.aten._to_copy, torch.ops.aten.copy_
_INDEXING = torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_

Made = dict[str, Params]


def why_not(engine: str, recipe: Recipe, server: Server, data: Dataset) -> str | None:
    """Why an engine cannot run the user's own parts; None if it can, or if they fail for one client alone, which the
    first round explains. Two clients of one server, and of two, take a step and finish their round."""
    own = own_parts(recipe)
    if engine == "serial" or not own:
        return None
    what = f"the {' and '.join(own)} of this run"
    with rng.seeded(0, "trial"), kernels_of("fp32"):
        try:
            trial, before = _Trial.of(recipe, server, data), rng.position()
            alone = trial.alone(padding=False)
        except Exception:
            return None
        drawn = f"{what} draws random numbers; each client has its own only where one runs after another"
        if rng.position() != before:
            return drawn
        if engine == "threaded":
            return None
        try:
            with _Reading() as reading:
                padded = trial.together() if engine == "stacked" else trial.alone(padding=True)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            return f"{what} cannot take several clients at once ({reason[0]})"
        if rng.position() != before:
            return drawn
    if engine == "graphed" and reading.found:
        return f"{what} reads numbers from tensors, so its steps cannot be captured"
    if all(close(one[part], other[part]) for one, other in zip(alone, padded, strict=True) for part in one):
        return None
    together = "to clients together, in batches with padding, than to each alone"
    way = together if engine == "stacked" else "in batches with padding"
    return f"{what} gives different numbers {way}; it must keep clients separate and ignore what a view's mask excludes"


def capturable(recipe: Recipe, server: Server, data: Dataset) -> bool:
    """Whether the steps of a cohort can be captured: no part of the user's own reads a number from a tensor."""
    if not own_parts(recipe):
        return True
    with rng.seeded(0, "trial"), kernels_of("fp32"):
        trial = _Trial.of(recipe, server, data)
        with _Reading() as reading:
            trial.together()
    return not reading.found


_CASES = (0, 0), (1, 0), (1, 1)
"""A client, and the server that has sent it the model."""


@dataclass(frozen=True)
class _Trial:
    """Two clients and what two servers have sent: parameters and states [2, ...], examples [2, B, ...].

    There are as many examples as classes, so that a loss that mixes up axes raises no error; the last one of the second
    client is padding. Parameters and states are random: in a model that starts at zero, a term over the batch may
    vanish.
    """

    recipe: Recipe
    params: Params
    optimizer: Params
    context: Context
    batch: Batch

    @classmethod
    def of(cls, recipe: Recipe, server: Server, data: Dataset) -> "_Trial":
        numbers, device = torch.Generator().manual_seed(0), data.x_train.device

        def near(leaf: Tensor) -> Tensor:
            """Above it, as a state may not be negative."""
            some = torch.rand(2, *leaf.shape, generator=numbers).to(leaf)
            return leaf + 0.1 * some if leaf.is_floating_point() else leaf.expand(2, *leaf.shape)

        def around(leaf: Tensor) -> Tensor:
            return leaf + 0.1 * torch.randn(2, *leaf.shape, generator=numbers).to(leaf)

        anchor, params = tree.map(around, server.params), tree.map(around, server.params)
        buffers = tree.map(lambda leaf: leaf.expand(2, *leaf.shape), server.buffers)
        client = tree.map(near, recipe.algorithm.correction.client_state(server.params))
        counts = 1 + torch.arange(2 * data.num_classes, device=device).view(2, -1)
        travel = recipe.travel(torch.tensor([3, 5], device=device))
        context = Context(anchor, buffers, client, tree.map(near, server.correction), counts, travel)
        optimizer = tree.map(near, recipe.optimizer.init(server.params))
        like = tree.first(server.params)
        return cls(
            replace(recipe, rate=torch.full_like(like.sum(), _RATE)),
            params,
            optimizer,
            context,
            _batch(data, like.dtype),
        )

    def alone(self, *, padding: bool) -> list[Made]:
        """One client after another, with padding or without."""
        x, y, mask = self.batch.x, self.batch.y, self.batch.mask
        assert mask is not None
        each = [Batch(x[k], y[k], mask[k]) if padding else Batch(x[k][mask[k]], y[k][mask[k]]) for k in range(2)]
        return [self._made(k, server, each[k]) for k, server in _CASES]

    def together(self) -> list[Made]:
        """Both clients of the first server, whose state has a leading axis of 1; and each of its own server."""
        made = [self._made(slice(2), servers, self.batch) for servers in (slice(1), slice(2))]
        return [{part: tree.rows(leaves, k) for part, leaves in made[server].items()} for k, server in _CASES]

    def _made(self, clients: int | slice, servers: int | slice, batch: Batch) -> Made:
        """What a step and the end of a round make of clients."""
        anchor, buffers, correction = (
            tree.rows(part, servers) for part in (self.context.anchor, self.context.buffers, self.context.server)
        )
        context = replace(take(self.context, clients), anchor=anchor, buffers=buffers, server=correction)
        lead = batch.y.shape[:-1]
        own = tree.map(lambda leaf: leaf.expand(*lead, *leaf.shape[len(lead) :]), buffers)
        fresh = begin(self.recipe, tree.rows(self.params, clients), own, lead)
        local = replace(fresh, optimizer=tree.rows(self.optimizer, clients))
        moved = local_step(self.recipe, context, local, batch)
        ended = finish(self.recipe, context, local, torch.ones_like(moved.loss))
        return {
            "begun": fresh.optimizer,
            "params": moved.params,
            "buffers": moved.buffers,
            "optimizer": moved.optimizer,
            "delta": ended.delta,
            "client": ended.client,
            "message": ended.message,
            "loss": {"loss": moved.loss},
        }


def few_examples(num_classes: int) -> int:
    """As many examples as classes, unless that is too few or too many."""
    return num_classes if _FEW <= num_classes <= _MANY else _FEW


def _batch(data: Dataset, dtype: torch.dtype) -> Batch:
    """Training examples [2, B, ...] with any labels."""
    size = few_examples(data.num_classes)
    rows = torch.arange(2 * size, device=data.x_train.device)
    x = data.prepare(data.x_train[rows % len(data.x_train)], dtype).view(2, size, *data.input_shape)
    y = (rows % data.num_classes).view(2, size)
    x[1, -1], y[1, -1] = x[1, -2], y[1, -2]
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[1, -1] = False
    return Batch(x, y, mask)


class _Reading(TorchDispatchMode):
    """Notes whether numbers or shapes are read from tensors, or tensors brought from one device to another."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, kind = func(*args, **(kwargs or {})), func.overloadpacket
        tensors = [leaf for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, Tensor)]
        if kind in _COPIES:
            self.found |= len({leaf.device for leaf in tensors}) > 1
        elif kind in _INDEXING:  # by a mask, its result has as many rows as the mask has ones
            self.found |= any(index is not None and index.dtype == torch.bool for index in args[1])
        else:
            self.found |= kind in _WAITING or not _READING.isdisjoint(func.tags)
        return made


def close(one: Params, other: Params) -> bool:
    """Whether two trees are the same but for rounding."""
    if [(name, leaf.shape) for name, leaf in one.items()] != [(name, leaf.shape) for name, leaf in other.items()]:
        return False
    if not one:
        return True
    if any(not torch.equal(leaf.isfinite(), other[name].isfinite()) for name, leaf in one.items()):
        return False
    exact = [tree.map(lambda leaf: leaf.double().nan_to_num(0, 0, 0), leaves) for leaves in (one, other)]
    apart, size = (float(tree.norm(leaves, 0)) for leaves in (tree.sub(*exact), exact[0]))
    return apart <= _CLOSE * max(size, _CLOSE)
