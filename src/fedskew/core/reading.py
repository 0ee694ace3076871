"""The last linear layer of a model: where it is, what it reads, and a client's gradient of it."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import answers
from fedskew.core.federation import Federation
from fedskew.core.tree import Params

if TYPE_CHECKING:
    from fedskew.models import Model
    from fedskew.readouts import Readout

_CLOSE = 1e-3


def last_layer(model: "Model", params: Params, buffers: Params, data: Dataset) -> tuple[str, str]:
    """The names of the rows w_y and the biases b_y of the linear layer that runs last."""
    dtype = next(iter(params.values())).dtype
    with torch.no_grad(), model.linear_inputs() as noted:
        said, _ = model.apply(params, buffers, data.prepare(data.x_test[:1], dtype), train=False)
    if not noted:
        raise ValueError(f"{type(model.module).__name__} has no linear layer whose input could be its features")
    name = noted[-1][0]
    start = f"{name}." if name else ""
    rows = params.get(f"{start}weight")
    if rows is None or len(rows) != said.logits.shape[-1]:
        raise ValueError(f"the linear layer that runs last, {name!r}, does not have one row for each class")
    return f"{start}weight", f"{start}bias"


def read_out(readout: "Readout", model: "Model", params: Params, buffers: Params, federation: Federation) -> Params:
    """The parameters that a readout replaces: none, or those of the last layer."""
    if not readout.asks:
        return {}
    data = federation.dataset
    rows, biases = fitted_layer(model, params, buffers, data)
    there = torch.from_numpy(federation.order).to(data.y_train.device)
    known = features(model, params, buffers, data, data.x_train[there])
    labels = data.y_train[there]

    def ask(weight: Tensor, bias: Tensor) -> tuple[float, Tensor, Tensor]:
        loss, by_weight, by_bias = client_gradient(known, labels, weight, bias)
        return float(loss) / len(labels), by_weight / len(labels), by_bias / len(labels)

    weight, bias = readout.fit(params[rows], params[biases], ask)
    return {rows: weight.to(params[rows]), biases: bias.to(params[biases])}


def fitted_layer(model: "Model", params: Params, buffers: Params, data: Dataset) -> tuple[str, str]:
    """The last layer's names, if its logits are W h + b and nothing else."""
    rows, biases = last_layer(model, params, buffers, data)
    if biases not in params:
        raise ValueError(f"the last layer has no bias, {biases}; allowed: layers with one")
    dtype = params[rows].dtype
    said = next(answers(model, params, buffers, data, data.x_test[:2], dtype))
    assert said.features is not None
    linear = functional.linear(said.features.flatten(1), params[rows], params[biases])
    if not torch.allclose(linear, said.logits.to(linear), _CLOSE, _CLOSE):
        raise ValueError("the model's outputs are not a linear layer's; allowed: a last layer such as head=linear")
    return rows, biases


def features(model: "Model", params: Params, buffers: Params, data: Dataset, x: Tensor) -> Tensor:
    """What the last layer reads of stored examples, [N, F], in evaluation mode."""
    dtype = next(iter(params.values())).dtype
    pieces = [said.features for said in answers(model, params, buffers, data, x, dtype)]
    return torch.cat([piece.flatten(1) for piece in pieces if piece is not None])


@torch.no_grad()
def client_gradient(known: Tensor, labels: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum over examples of cross entropy and of its gradient by the last layer: softmax less label, by feature."""
    logits = functional.linear(known, weight, bias)
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    away = logits.softmax(-1)
    away[torch.arange(len(labels), device=labels.device), labels] -= 1
    return loss, away.mT @ known, away.sum(0)
