"""A trial before round 1: whether the user's own parts give padded batches the same results as without padding.

A loss or a module that looks at the whole batch sees copies of its last example where an engine pads it.
"""

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.core.errors import own_parts
from fedskew.core.round import Batch, Context, Recipe, Server, gradient, take
from fedskew.core.tree import Params

_FEW, _MANY = 3, 128
_CLOSE = 1e-3


def why_not_padded(recipe: Recipe, server: Server, data: Dataset, *, together: bool) -> str | None:
    """Why clients cannot run in padded batches, `together` as one tensor program or one by one; None if they can. Two
    clients are tried, each alone without padding and then as the engine would run them. There are as many examples as
    classes, so that a loss that mixes up axes raises no error here. Parameters are random: in a model that starts at
    zero, a term over the batch may vanish.
    """
    own = own_parts(recipe)
    if not own:
        return None
    what = f"the {' and '.join(own)} of this run"
    size = data.num_classes if _FEW <= data.num_classes <= _MANY else _FEW
    lengths = size, size - 1
    x, y = _examples(data, size, next(iter(server.params.values())).dtype)
    mask = torch.arange(size, device=x.device) < torch.tensor(lengths, device=x.device).unsqueeze(-1)
    params, context = _two_clients(recipe, server, data)

    def trained(k: int, batch: Batch) -> tuple[Params, Tensor]:
        return gradient(recipe, take(context, k), tree.rows(params, k), server.buffers, batch)[:2]

    try:
        alone = [trained(k, Batch(x[k, :n], y[k, :n])) for k, n in enumerate(lengths)]
    except Exception:
        return None  # it fails for one client too, and the first round says how
    try:
        if together:
            buffers = tree.map(lambda leaf: leaf.expand(2, *leaf.shape), server.buffers)
            grads, losses, _ = gradient(recipe, context, params, buffers, Batch(x, y, mask))
            padded = [(tree.rows(grads, k), losses[k]) for k in range(2)]
        else:
            padded = [trained(k, Batch(x[k], y[k], mask[k])) for k in range(2)]
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return f"{what} cannot take several clients at once ({reason[0]})"
    if all(_close(one[0] | {"": one[1]}, other[0] | {"": other[1]}) for one, other in zip(alone, padded, strict=True)):
        return None
    way = "to clients together, in batches with padding, than to each alone" if together else "in batches with padding"
    return f"{what} gives different numbers {way}; it must keep clients separate and ignore what a view's mask excludes"


def _examples(data: Dataset, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Training examples [2, size, ...] and any labels; the last example of the second client is padding."""
    rows = torch.arange(2 * size, device=data.x_train.device)
    x = data.prepare(data.x_train[rows % len(data.x_train)], dtype).view(2, size, *data.input_shape)
    y = (rows % data.num_classes).view(2, size)
    x[1, -1], y[1, -1] = x[1, -2], y[1, -2]
    return x, y


def _two_clients(recipe: Recipe, server: Server, data: Dataset) -> tuple[Params, Context]:
    numbers = torch.Generator().manual_seed(0)

    def spread(leaf: Tensor) -> Tensor:
        noise = torch.randn(2, *leaf.shape, generator=numbers).to(leaf)
        return leaf + 0.1 * noise if leaf.is_floating_point() else leaf.expand(2, *leaf.shape)

    def twice(leaves: Params) -> Params:
        return tree.map(lambda leaf: leaf.expand(2, *leaf.shape), leaves)

    params = tree.map(spread, server.params)
    device = data.x_train.device
    counts = 1 + torch.arange(2 * data.num_classes, device=device).view(2, -1)
    client = twice(recipe.algorithm.correction.client_state(server.params))
    travel = recipe.travel(torch.tensor([3, 5], device=device))
    return params, Context(
        twice(server.params), twice(server.buffers), client, twice(server.correction), counts, travel
    )


def _close(one: Params, other: Params) -> bool:
    apart, size = (float(tree.norm(leaves, 0)) for leaves in (tree.sub(one, other), other))
    return apart <= _CLOSE * max(size, 1e-6)
