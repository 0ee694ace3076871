"""One round of federated learning: pure functions, and the only place with a training gradient.

Leading axes are free. The same code updates one client (no leading axis), a cohort [K, ...], or a cohort of several
seeds; clients share no parameter, so the gradient of the summed loss is every client's own gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.tree import Params
from fedskew.core.view import Context as Context
from fedskew.core.view import Outputs, View
from fedskew.core.view import Sums as Sums

if TYPE_CHECKING:
    from fedskew.algorithms import Algorithm, Ascent
    from fedskew.models import Model
    from fedskew.optimizers import Optimizer


@dataclass(frozen=True)
class Recipe:
    """What every client does in a round: what a step minimises, and how it moves along the gradient of that.

    `rate`, if given, replaces the optimiser's own: a rate in fixed memory needs no new CUDA graph.
    """

    model: Model
    algorithm: Algorithm
    optimizer: Optimizer
    grad_clip: float | None = None
    rate: Tensor | None = None

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        return self.algorithm.ascents

    def losses(self, params: Params, buffers: Params, batch: Batch, context: Context) -> tuple[Tensor, Params]:
        """Per-example losses of a batch, and the buffers as the pass leaves them."""
        outputs, buffers = self.model.apply(params, buffers, batch.x, batch.mask, train=True)
        teacher, states = partial(self.teach, context, batch.x), (context.client, context.server)
        view = View(outputs, batch.y, batch.mask, context.counts, context.travel, teacher, *states)
        return self.algorithm.objective(view), buffers

    def teach(self, context: Context, x: Tensor, params: Params | None = None) -> Outputs:
        """The outputs of the global model for examples, or of one with other parameters. The batches of clients that
        share it run as one."""
        model, params = self.model.evaluating, context.anchor if params is None else params
        with torch.no_grad():
            shared = context.counts.ndim > 1 and all(len(leaf) == 1 for leaf in params.values())
            given = x.flatten(0, 1).unsqueeze(0) if shared else x
            said, _ = model.apply(params, context.buffers, given, train=False)
            if not shared:
                return said
            lead, features = x.shape[:2], said.features
            return Outputs(
                said.logits.reshape(*lead, *said.logits.shape[2:]),
                None if features is None else features.reshape(*lead, *features.shape[2:]),
            )

    def travel(self, steps: Tensor) -> Tensor:
        """How far the optimiser moves in this many steps; just the number of steps if no part of the algorithm needs
        it."""
        if not self.algorithm.needs_travel:
            return steps.double()
        return self.optimizer.travel(steps, self.algorithm.correction.pull)

    def bent(self, grads: Params, local: Local, context: Context) -> Params:
        """Gradients corrected and clipped."""
        grads = self.algorithm.correction.bend(grads, local.params, context)
        return grads if self.grad_clip is None else _clipped(grads, self.grad_clip, local.loss.ndim)

    def move(self, grads: Params, local: Local, context: Context) -> tuple[Params, Params]:
        """Parameters and optimiser state after a step along corrected, clipped gradients."""
        grads = self.bent(grads, local, context)
        rate = self.optimizer.lr if self.rate is None else self.rate
        updates, optimizer = self.optimizer.update(grads, local.optimizer, local.params, rate)
        return tree.add(local.params, updates), optimizer


@dataclass(frozen=True)
class Server:
    """The global model and what the server remembers between rounds.

    `readout` are the parameters that a readout has replaced, if this model was read out: its users take them.
    """

    params: Params
    buffers: Params
    correction: Params
    optimizer: Params
    readout: Params = field(default_factory=dict)

    @property
    def used(self) -> Params:
        """The parameters of the model as it is measured and exported."""
        return {**self.params, **self.readout}


@dataclass(frozen=True)
class Local:
    """What moves with every local step. `loss` is the sum of the batch losses so far."""

    params: Params
    buffers: Params
    optimizer: Params
    loss: Tensor


@dataclass(frozen=True)
class Batch:
    """Examples [..., B, *shape] with labels [..., B]; the mask [..., B] is False for padding, None for none."""

    x: Tensor
    y: Tensor
    mask: Tensor | None = None


@dataclass(frozen=True)
class Update:
    """The result of a client's round. It does not contain label counts."""

    delta: Params
    buffers: Params
    client: Params
    message: Params
    travel: Tensor
    loss: Tensor


Record = TypeVar("Record", Server, Context, Local, Update)
Merge = Callable[[Params, Tensor], Params]


def take(record: Record, index: slice | Tensor | int) -> Record:
    """Some clients, or one, of a record with clients on its first axis."""

    def rows(part: Any) -> Any:
        return tree.rows(part, index) if isinstance(part, dict) else part[index]

    return type(record)(**{name: rows(part) for name, part in vars(record).items()})


def join(records: Sequence[Record], *, new_axis: bool = False) -> Record:
    """Records of several clients as one, along the first axis or along a new first axis."""
    trees, tensors = (tree.stack, torch.stack) if new_axis else (tree.concatenate, torch.cat)

    def joined(parts: list[Any]) -> Any:
        return trees(parts) if isinstance(parts[0], dict) else tensors(parts)

    names = [field.name for field in fields(records[0])]
    return type(records[0])(**{name: joined([getattr(record, name) for record in records]) for name in names})


def start_server(recipe: Recipe, params: Params, buffers: Params) -> Server:
    algorithm = recipe.algorithm
    server = Server(params, buffers, algorithm.correction.server_state(params), algorithm.server.init(params))
    if not algorithm.aggregate.linear:
        messages = "its correction's messages" if zero_sums(recipe, server).message else None
        averaged = messages or ("lengths" if algorithm.server.needs_square else None)
        if averaged is not None:
            raise ValueError(
                f"{algorithm.name}: the server averages {averaged}, so one client could bypass the aggregate; allowed: "
                "methods whose server uses only the aggregate of models"
            )
    return server


def received(algorithm: Algorithm, server: Server) -> Server:
    """The server's state as clients receive it: some optimisers send out a look-ahead model."""
    return replace(server, params=algorithm.server.look(server.params, server.optimizer))


def gradient(
    recipe: Recipe, context: Context, params: Params, buffers: Params, batch: Batch
) -> tuple[Params, Tensor, Params]:
    """The gradient of the batch's mean loss at `params`, that loss, and the buffers as the pass leaves them."""
    with torch.enable_grad():
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in params.items()}
        losses, buffers = recipe.losses(leaves, buffers, batch, context)
        check_losses(losses, batch.y)
        weighted = _shares(losses, batch.mask) * losses
        # Of a sum: given an outer gradient, PyTorch first imports its symbolic shapes, which takes half a second.
        grads = torch.autograd.grad(weighted.sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), weighted.detach().sum(-1), buffers


def check_losses(losses: Tensor, labels: Tensor) -> None:
    """Refuse the losses of a batch if they are not one value per example."""
    if losses.shape != labels.shape:
        raise ValueError(
            f"the loss has shape {list(losses.shape)} for labels of shape {list(labels.shape)}; "
            "allowed: one value per example, no mean (reduction='none')"
        )


def local_step(recipe: Recipe, context: Context, local: Local, batch: Batch) -> Local:
    """One optimiser step on one batch: gradient of the mean loss, corrected, clipped, applied."""
    grads, loss, buffers = gradient(recipe, context, local.params, local.buffers, batch)
    with torch.no_grad():
        for ascend in recipe.ascents:
            there = ascend(local.params, grads, context)
            grads, _, _ = gradient(recipe, context, there, local.buffers, batch)
        moved, optimizer = recipe.move(grads, local, context)
        return Local(moved, buffers, optimizer, local.loss + loss)


def local_update(recipe: Recipe, context: Context, batches: Iterable[Batch], steps: Tensor) -> Update:
    """A client's whole round: from the global model through its batches to its message."""
    local = begin(recipe, context.anchor, context.buffers, steps.shape)
    for batch in batches:
        local = local_step(recipe, context, local, batch)
    return finish(recipe, context, local, steps)


def begin(recipe: Recipe, params: Params, buffers: Params, lead: torch.Size) -> Local:
    """Clients at the global model with a fresh optimiser."""
    return Local(params, buffers, recipe.optimizer.init(params), tree.first(params).new_zeros(lead))


def finish(recipe: Recipe, context: Context, local: Local, steps: Tensor) -> Update:
    """Deltas and messages after the last step."""
    with torch.no_grad():
        delta = tree.sub(local.params, context.anchor)
        delta, client, message = recipe.algorithm.correction.finish(context, delta)
        if client.keys() != context.client.keys():
            raise ValueError("finish of the correction returned a state with other names than client_state has")
        return Update(delta, local.buffers, client, message, context.travel, local.loss / steps.to(local.loss))


def server_update(
    algorithm: Algorithm, server: Server, updates: Update, weights: Tensor, everyone: Tensor | None = None
) -> Server:
    """The next global model from updates stacked on their first axis, of clients with these weights. `everyone` are the
    weights of all clients, if not all of them answered.
    """
    sums = summed(algorithm, updates, weights, updates.travel)
    return conclude(algorithm, server, sums, answered(algorithm, weights, weights if everyone is None else everyone))


def summed(algorithm: Algorithm, updates: Update, weights: Tensor, travel: Tensor, here: Tensor | None = None) -> Sums:
    """The sums over a round's clients with these weights and travels; the updates are those of the clients `here`, by
    default all."""
    counted = scales(algorithm, weights, travel)
    counted = counted if here is None else counted[:, here]
    there = counted.to(updates.travel.device, non_blocking=True)  # the clients' steps may still be running
    return add_up(updates, there, len(weights), algorithm.aggregate.merge, square=algorithm.server.needs_square)


def scales(algorithm: Algorithm, weights: Tensor, travel: Tensor) -> Tensor:
    """The coefficients of each client's delta, buffers and message, [3, K], from the weights and travels of a round."""
    messages = algorithm.correction.weigh(weights)
    parts = algorithm.aggregate.coefficients(weights, travel), weights / weights.sum(), messages / messages.sum()
    return torch.stack(parts)


def answered(algorithm: Algorithm, weights: Tensor, everyone: Tensor) -> float:
    """The share of these clients among all clients, by the weights of their messages."""
    here, all_ = (algorithm.correction.weigh(part).sum() for part in (weights, everyone))
    return float(here / all_)


def add_up(
    updates: Update, scales: Tensor, count: int, merge: Merge = tree.weighted_sum, *, square: bool = False
) -> Sums:
    """The sums over some of a round's `count` clients, with these coefficients for deltas, buffers and messages. A
    `merge` that is not a sum takes all of them at once.
    """
    with torch.no_grad():
        squares = (tree.norm(updates.delta, 1).to(scales).square() * scales[1]).sum() if square else None
        return Sums(
            delta=merge(updates.delta, scales[0]),
            buffers=merge(updates.buffers, scales[1]) if updates.buffers else {},
            message=tree.weighted_sum(updates.message, scales[2]),
            travel=(updates.travel.to(scales) * scales[1]).sum(),
            loss=updates.loss.double().mean() * (len(updates.loss) / count),
            square=scales.new_zeros(()) if squares is None else squares,
        )


def zero_sums(recipe: Recipe, server: Server) -> Sums:
    """The sums over no client: zeros in the shape of what clients would have sent."""
    steps = torch.ones((), dtype=torch.int64, device=tree.first(server.params).device)
    client = recipe.algorithm.correction.client_state(server.params)
    counts = torch.zeros(0, device=steps.device)
    context = Context(server.params, server.buffers, client, server.correction, counts, recipe.travel(steps))
    idle = finish(recipe, context, begin(recipe, server.params, server.buffers, steps.shape), steps)
    silent = replace(idle, message=tree.zeros_like(idle.message), loss=torch.zeros_like(idle.loss))
    return add_up(join([silent], new_axis=True), torch.zeros(3, 1, dtype=torch.float64, device=steps.device), 1)


def conclude(algorithm: Algorithm, server: Server, sums: Sums, fraction: float) -> Server:
    """The next global model from the sums over all clients that answered, which are `fraction` of all clients."""
    with torch.no_grad():
        optimizer, correction = algorithm.server, algorithm.correction
        moves, state = optimizer.update(tree.neg(sums.delta), server.optimizer, server.params, optimizer.pace(sums))
        params = tree.add(server.params, moves)
        remembered = correction.absorb(server.correction, sums, fraction)
        if shift := correction.shift(remembered):
            params = tree.add(params, shift)
        return Server(params, tree.map(_typed, sums.buffers, server.buffers), remembered, state)


def _typed(leaf: Tensor, like: Tensor) -> Tensor:
    """A mean in the type of its values: integers (a module's counters) are rounded back."""
    return leaf if like.is_floating_point() else leaf.round().to(like.dtype)


def _shares(losses: Tensor, mask: Tensor | None) -> Tensor:
    """The weight of each example in its batch's mean: 1/n, and 0 for padding."""
    if mask is None:
        return torch.full_like(losses, 1 / losses.shape[-1])
    return mask.to(losses.dtype) / mask.sum(-1, keepdim=True)


def _clipped(grads: Params, limit: float, axes: int) -> Params:
    """Scale gradients so that each client's whole gradient has at most this norm."""
    scale = (limit / (tree.norm(grads, axes) + 1e-12)).clamp(max=1.0)
    return tree.map(lambda grad: grad * tree.lead(scale, grad), grads)
