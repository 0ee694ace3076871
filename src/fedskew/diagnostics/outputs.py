"""The last linear layer of a model: its input h, the logits f = W h + b behind it, and its rows w_y and biases b_y."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedskew.data.dataset import Dataset
from fedskew.models import Model
from fedskew.tree import Params

_BATCH_VALUES = 1 << 22


@dataclass(frozen=True)
class Outputs:
    """Features [N, F] and logits [N, C] of examples, in float64."""

    features: Tensor
    logits: Tensor


def outputs(model: Model, state: tuple[Params, Params], data: Dataset, x: Tensor) -> Outputs:
    """Stored examples through a model in evaluation mode, in pieces that stay small in memory."""
    dtype = dtype_of(state[0])
    rows = max(1, _BATCH_VALUES // max(1, x[0].numel()))
    pieces = [_one_pass(model, state, data.prepare(piece, dtype)) for piece in x.split(rows)]
    features = torch.cat([given.double() for _, given, _ in pieces]).flatten(1)
    return Outputs(features, torch.cat([logits.double() for *_, logits in pieces]))


def dtype_of(params: Params) -> torch.dtype:
    """The type that a model's parameters are kept in, and its inputs come in."""
    return next(iter(params.values())).dtype


def classifier(model: Model, state: tuple[Params, Params], data: Dataset) -> tuple[str, str]:
    """What the rows w_y and the biases b_y of the linear layer that runs last are called among the parameters."""
    name, _, logits = _one_pass(model, state, data.prepare(data.x_test[:1], dtype_of(state[0])))
    start = f"{name}." if name else ""
    rows = state[0].get(f"{start}weight")
    if rows is None or len(rows) != logits.shape[-1]:
        raise ValueError(f"the linear layer that runs last, {name!r}, does not have one row for each class")
    return f"{start}weight", f"{start}bias"


def _one_pass(model: Model, state: tuple[Params, Params], x: Tensor) -> tuple[str, Tensor, Tensor]:
    """Name and input of the linear layer that runs last, and the logits."""
    noted: list[tuple[str, Tensor]] = []

    def noting(name: str) -> torch.utils.hooks.RemovableHandle:
        part = model.module.get_submodule(name)
        return part.register_forward_pre_hook(lambda _, given: noted.append((name, given[0])))

    hooks = [noting(name) for name, part in model.module.named_modules() if isinstance(part, nn.Linear)]
    try:
        with torch.no_grad():
            logits, _ = model.apply(*state, x, train=False)
    finally:
        for hook in hooks:
            hook.remove()
    if not noted:
        raise ValueError(f"{type(model.module).__name__} has no linear layer whose input could be its features")
    return *noted[-1], logits
