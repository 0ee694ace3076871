"""The last linear layer of a model: where it is, what it reads, and a client's gradient of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import answers, piece_size
from fedskew.core.federation import Federation
from fedskew.core.tree import Params

if TYPE_CHECKING:
    from fedskew.models import Model
    from fedskew.readouts import Ask, Readout

_CLOSE = 1e-3


@dataclass(frozen=True)
class Reading:
    """The parameters that a readout replaces, and how many gradients it asked for: one of each client at each ask."""

    layer: Params
    asked: int = 0


def last_layer(model: "Model", params: Params, buffers: Params, data: Dataset) -> tuple[str, str]:
    """The names of the rows w_y and the biases b_y of the linear layer that runs last."""
    with model.linear_inputs() as noted:
        said = next(answers(model, params, buffers, data, data.x_test[:1]))
    if not noted:
        raise ValueError(f"{type(model.module).__name__} has no linear layer whose input could be its features")
    name = noted[-1][0]
    start = f"{name}." if name else ""
    rows = params.get(f"{start}weight")
    if rows is None:
        raise ValueError(f"the linear layer that runs last, {name!r}, is not trained")
    if len(rows) != said.logits.shape[-1]:
        raise ValueError(f"the linear layer that runs last, {name!r}, does not have one row for each class")
    return f"{start}weight", f"{start}bias"


def read_out(readout: "Readout", model: "Model", params: Params, buffers: Params, federation: Federation) -> Reading:
    """The last layer as a readout has it; nothing is replaced or asked if the layer's input is not finite."""
    if not readout.asks:
        return Reading({})
    data = federation.dataset
    rows, biases = last_layer(model, params, buffers, data)
    there = torch.from_numpy(federation.order).to(data.y_train.device)
    known, labels = features(model, params, buffers, data, there), data.y_train[there]
    if not known.isfinite().all():
        return Reading({})
    asks = 0

    def ask(weight: Tensor, bias: Tensor) -> tuple[float, Tensor, Tensor]:
        nonlocal asks
        asks += 1
        loss, by_weight, by_bias = client_gradient(known, labels, weight, bias)
        return float(loss) / len(labels), by_weight / len(labels), by_bias / len(labels)

    layer = fit(readout, params, (rows, biases), ask)
    return Reading(layer, asks * federation.num_clients)


def fit(readout: "Readout", params: Params, layer: tuple[str, str], ask: "Ask") -> Params:
    """The layer of these names as a readout fits it, in the type of the trained one."""
    rows, biases = layer
    found = readout.fit(params[rows], params[biases], ask)
    return {name: leaf.to(params[name]) for name, leaf in zip(layer, found, strict=True)}


def fitted_layer(model: "Model", params: Params, buffers: Params, data: Dataset) -> tuple[str, str]:
    """The last layer's names, if its logits are W h + b and nothing else, whatever the parameters are."""
    rows, biases = last_layer(model, params, buffers, data)
    if biases not in params:
        raise ValueError(f"the last layer has no bias, {biases}; allowed: layers with one")
    other = {name: 1.25 * leaf + 0.05 if leaf.is_floating_point() else leaf for name, leaf in params.items()}
    said = next(answers(model, other, buffers, data, data.x_test[:2]))
    assert said.features is not None
    linear = functional.linear(said.features.flatten(1), other[rows], other[biases])
    if not torch.allclose(linear, said.logits.to(linear), _CLOSE, _CLOSE):
        raise ValueError("the model's outputs are not a linear layer's; allowed: a last layer such as head=linear")
    return rows, biases


def features(model: "Model", params: Params, buffers: Params, data: Dataset, there: Tensor) -> Tensor:
    """What the last layer reads of these training examples, [N, F], in evaluation mode."""
    size, known = piece_size(data.x_train), list[Tensor]()
    for start in range(0, len(there), size):
        piece = there[start : start + size]
        said = next(answers(model, params, buffers, data, data.x_train[piece])).features
        assert said is not None
        if not known:
            known.append(said.new_empty(len(there), said[0].numel()))
        known[0][start : start + len(piece)] = said.flatten(1)
    return known[0]


@torch.no_grad()
def client_gradient(known: Tensor, labels: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum over examples of cross entropy and of its gradient by the last layer: softmax less label, by feature."""
    logits = functional.linear(known, weight, bias)
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    away = logits.softmax(-1)
    away[torch.arange(len(labels), device=labels.device), labels] -= 1
    return loss, away.mT @ known, away.sum(0)
