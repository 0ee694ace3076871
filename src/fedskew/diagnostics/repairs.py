"""What a global model would reach if a part of it were mended with everybody's training examples in one place.

No federation can do that: this is an instrument. It tells where the distance to IID data lies: in the running
statistics of batch norm, in the last linear layer, or in the features before it, which are not mended.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import evaluate_model
from fedskew.core.tree import Params
from fedskew.diagnostics.outputs import classifier, dtype_of, outputs
from fedskew.diagnostics.values import plain
from fedskew.models import Model

_BATCH, _PASSES, _STEPS, _DECAY = 512, 60, 200, 1e-4
State = tuple[Params, Params]


def repairs(model: Model, state: State, data: Dataset) -> dict[str, Any]:
    """Test accuracy as it is, with statistics of all examples, with a last layer fitted to all of them, and with both.

    None where a model has no such part.
    """
    norms = settled(model, state, data) if state[1] else None
    mended = {"as_is": state, "norms": norms, "head": refitted(model, state, data)}
    mended["both"] = None if norms is None else refitted(model, norms, data)
    dtype = dtype_of(state[0])
    return {
        name: None if each is None else plain(evaluate_model(model, *each, data, dtype).accuracy)
        for name, each in mended.items()
    }


@torch.no_grad()
def settled(model: Model, state: State, data: Dataset) -> State:
    """The model with running statistics of batches that are drawn from all training examples."""
    (params, buffers), generator = state, torch.Generator().manual_seed(0)
    for _ in range(_PASSES):
        drawn = torch.randperm(len(data.x_train), generator=generator)[:_BATCH].to(data.x_train.device)
        batch = data.prepare(data.x_train[drawn], dtype_of(params))
        _, buffers = model.apply(params, buffers, batch, train=True)
    return params, buffers


def refitted(model: Model, state: State, data: Dataset) -> State | None:
    """The model with its last linear layer fitted to the features of all training examples: softmax regression, with a
    penalty on scaled features so small that it only keeps the fit finite."""
    try:
        rows, biases = classifier(model, state, data)
    except ValueError:
        return None
    features = outputs(model, state, data, data.x_train).features
    scale = features.std(0).clamp(min=1e-8)
    weight, bias = _fitted(features / scale, data.y_train, data.num_classes)
    params, kind = dict(state[0]), dtype_of(state[0])
    params[rows] = (weight / scale).to(kind)
    if biases in params:
        params[biases] = bias.to(kind)
    return params, state[1]


def _fitted(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    weight = x.new_zeros(classes, x.shape[1], requires_grad=True)
    bias = x.new_zeros(classes, requires_grad=True)
    search = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        search.zero_grad()
        value = functional.cross_entropy(functional.linear(x, weight, bias), y) + _DECAY * weight.square().sum() / 2
        value.backward()
        return float(value.detach())

    search.step(loss)
    return weight.detach(), bias.detach()
