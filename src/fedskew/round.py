"""One round of federated learning: pure functions, and the only place with a training gradient.

Leading axes are free. The same code updates one client (no leading axis), a cohort [K, ...], or a cohort of several
seeds; clients share no parameter, so the gradient of the summed loss is every client's own gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from fedskew import tree
from fedskew.tree import Params

if TYPE_CHECKING:
    from fedskew.algorithms import Algorithm
    from fedskew.models import Model
    from fedskew.optimizers import Optimizer


@dataclass(frozen=True)
class Recipe:
    """What every client does in a round: what a step minimises, and how it moves along the gradient of that."""

    model: Model
    algorithm: Algorithm
    optimizer: Optimizer
    grad_clip: float | None = None

    def losses(self, params: Params, buffers: Params, batch: Batch, counts: Tensor) -> tuple[Tensor, Params]:
        """Per-example losses of a batch, and the buffers as the pass leaves them."""
        logits, buffers = self.model.apply(params, buffers, batch.x, batch.mask, train=True)
        return self.algorithm.loss(logits, batch.y, counts), buffers

    def travel(self, steps: Tensor) -> Tensor:
        """How far the optimiser moves in so many steps; no part looks at it where it is just their number."""
        return self.optimizer.travel(steps) if self.algorithm.needs_travel else steps.double()

    def move(self, grads: Params, local: Local, context: Context) -> tuple[Params, Params]:
        """Parameters and optimiser state after a step along corrected, clipped gradients."""
        correction = self.algorithm.correction
        grads = correction.grad(grads, local.params, context.anchor, context.client, context.server)
        if self.grad_clip is not None:
            grads = _clipped(grads, self.grad_clip, local.loss.ndim)
        updates, optimizer = self.optimizer.update(grads, local.optimizer, local.params)
        return tree.add(local.params, updates), optimizer


@dataclass(frozen=True)
class Server:
    """The global model and what the server remembers between rounds."""

    params: Params
    buffers: Params
    correction: Params
    optimizer: Params


@dataclass(frozen=True)
class Context:
    """What stays fixed during a client's update: the global model, the correction's two states, the label counts."""

    anchor: Params
    client: Params
    server: Params
    counts: Tensor


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
    """What a client's round leaves. Label counts are not in it."""

    delta: Params
    buffers: Params
    client: Params
    message: Params
    travel: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Sums:
    """What the server needs of a round. Each part of a cohort has its own; added, they are those of the whole."""

    delta: Params
    buffers: Params
    message: Params
    loss: Tensor


Record = TypeVar("Record", Context, Local, Update)
Merge = Callable[[Params, Tensor], Params]


def take(record: Record, index: slice | Tensor) -> Record:
    """Some clients of a record that carries them on its first axis."""

    def rows(part: Any) -> Any:
        return tree.rows(part, index) if isinstance(part, dict) else part[index]

    return type(record)(**{field.name: rows(getattr(record, field.name)) for field in fields(record)})


def join(records: Sequence[Record], *, new_axis: bool = False) -> Record:
    """Records of several clients as one, along the first axis or along a new first axis."""
    trees, tensors = (tree.stack, torch.stack) if new_axis else (tree.concatenate, torch.cat)

    def joined(parts: list[Any]) -> Any:
        return trees(parts) if isinstance(parts[0], dict) else tensors(parts)

    names = [field.name for field in fields(records[0])]
    return type(records[0])(**{name: joined([getattr(record, name) for record in records]) for name in names})


def start_server(recipe: Recipe, params: Params, buffers: Params) -> Server:
    algorithm = recipe.algorithm
    server = Server(params, buffers, algorithm.correction.init(params), algorithm.server.init(params))
    if not algorithm.aggregate.linear and nothing(recipe, server).message:
        raise ValueError(
            f"{algorithm.name}: the server takes the plain mean of its correction's messages, through which one client "
            "could still do all that the aggregate keeps out; allowed: methods whose clients send a model alone"
        )
    return server


def local_step(recipe: Recipe, context: Context, local: Local, batch: Batch) -> Local:
    """One optimiser step on one batch: gradient of the mean loss, corrected, clipped, applied."""
    with torch.enable_grad():
        params = {name: leaf.detach().requires_grad_() for name, leaf in local.params.items()}
        losses, buffers = recipe.losses(params, local.buffers, batch, context.counts)
        if losses.shape != batch.y.shape:
            raise ValueError(
                f"the loss has shape {list(losses.shape)} for labels of shape {list(batch.y.shape)}; "
                "allowed: one value per example, no mean"
            )
        shares = _shares(losses, batch.mask)
        leaves = torch.autograd.grad(losses, list(params.values()), shares, materialize_grads=True)
    with torch.no_grad():
        moved, optimizer = recipe.move(dict(zip(params, leaves, strict=True)), local, context)
        return Local(moved, buffers, optimizer, local.loss + (shares * losses).sum(-1))


def local_update(recipe: Recipe, context: Context, buffers: Params, batches: Iterable[Batch], steps: Tensor) -> Update:
    """A client's whole round: from the global model through its batches to its message."""
    local = begin(recipe, context.anchor, buffers, steps.shape)
    for batch in batches:
        local = local_step(recipe, context, local, batch)
    return finish(recipe, context, local, steps)


def begin(recipe: Recipe, params: Params, buffers: Params, lead: torch.Size) -> Local:
    """Clients at the global model with a fresh optimiser."""
    dtype, device = next((leaf.dtype, leaf.device) for leaf in params.values())
    return Local(params, buffers, recipe.optimizer.init(params), torch.zeros(lead, dtype=dtype, device=device))


def finish(recipe: Recipe, context: Context, local: Local, steps: Tensor) -> Update:
    """Deltas and messages after the last step."""
    with torch.no_grad():
        algorithm = recipe.algorithm
        delta = tree.sub(local.params, context.anchor)
        travel = recipe.travel(steps)
        client, message = algorithm.correction.finish(context.client, context.server, delta, travel)
        return Update(delta, local.buffers, client, message, travel, local.loss / steps.to(local.loss))


def server_update(algorithm: Algorithm, server: Server, updates: Update, weights: Tensor, fraction: float) -> Server:
    """The next global model from updates stacked on their first axis; `fraction` of all clients answered."""
    coefficients = algorithm.aggregate.coefficients(weights, updates.travel)
    sums = add_up(updates, coefficients, weights / weights.sum(), len(weights), algorithm.aggregate.merge)
    return conclude(algorithm, server, sums, fraction)


def add_up(updates: Update, coefficients: Tensor, shares: Tensor, count: int, merge: Merge = tree.weighted_sum) -> Sums:
    """The sums over some of a round's `count` clients, of which deltas and buffers count so much.

    A `merge` that is no sum makes the same of all of them at once.
    """
    with torch.no_grad():
        return Sums(
            delta=merge(updates.delta, coefficients),
            buffers=merge(updates.buffers, shares),
            message=tree.map(lambda leaf: leaf.mean(0) * (len(leaf) / count), updates.message),
            loss=updates.loss.double().mean() * (len(updates.loss) / count),
        )


def nothing(recipe: Recipe, server: Server) -> Sums:
    """The sums over no client: zeros in the shape of what clients would have left."""
    steps = torch.ones((), dtype=torch.int64, device=next(iter(server.params.values())).device)
    client = recipe.algorithm.correction.init(server.params)
    context = Context(server.params, client, server.correction, torch.zeros(0))
    idle = finish(recipe, context, begin(recipe, server.params, server.buffers, steps.shape), steps)
    none = torch.zeros(1, device=steps.device)
    silent = replace(idle, message=tree.zeros_like(idle.message), loss=torch.zeros_like(idle.loss))
    return add_up(join([silent], new_axis=True), none, none, 1)


def conclude(algorithm: Algorithm, server: Server, sums: Sums, fraction: float) -> Server:
    """The next global model from the sums over all clients that answered, `fraction` of all there are."""
    with torch.no_grad():
        moves, optimizer = algorithm.server.update(tree.neg(sums.delta), server.optimizer, server.params)
        messages = tree.map(lambda leaf: leaf.unsqueeze(0), sums.message)
        return Server(
            params=tree.add(server.params, moves),
            buffers=tree.map(_typed, sums.buffers, server.buffers),
            correction=algorithm.correction.absorb(server.correction, messages, fraction),
            optimizer=optimizer,
        )


def _typed(leaf: Tensor, like: Tensor) -> Tensor:
    """A mean in the type of what it is a mean of: whole numbers (a module's counters) are rounded back."""
    return leaf if like.is_floating_point() else leaf.round().to(like.dtype)


def _shares(losses: Tensor, mask: Tensor | None) -> Tensor:
    """How much of its batch's mean each example is: 1/n, and 0 for padding."""
    if mask is None:
        return torch.full_like(losses, 1 / losses.shape[-1])
    return mask.to(losses.dtype) / mask.sum(-1, keepdim=True)


def _clipped(grads: Params, limit: float, axes: int) -> Params:
    """Gradients scaled so that each client's whole gradient has at most this norm."""
    scale = (limit / (tree.norm(grads, axes) + 1e-12)).clamp(max=1.0)
    return tree.map(lambda grad: grad * tree.lead(scale, grad), grads)
