"""What a global model would reach if a part of it were mended with everybody's training examples.

It tells where the distance to IID data lies: in the running statistics of batch norm, in the last linear layer, or in
the features before it, which are not mended. A federation can mend the last layer: that is the method `refit`.
"""

from typing import Any

import torch

from fedskew.core import tree
from fedskew.core.evaluation import evaluate_model
from fedskew.core.federation import Federation
from fedskew.core.reading import fitted_layer, read_out
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.diagnostics.values import plain
from fedskew.models import Model
from fedskew.readouts import fitted

_BATCH, _PASSES = 512, 60
_FIT = fitted(asks=200, pull=0.001)
State = tuple[Params, Params]


def repairs(model: Model, server: Server, federation: Federation) -> dict[str, Any]:
    """Test accuracy as the model is used, with statistics of all examples, with a last layer fitted to all of them, and
    with both; the latter from the trained model, without a readout. None where a model has no such part.
    """
    state = server.params, server.buffers
    norms = settled(model, state, federation) if any(name.endswith("running_mean") for name in state[1]) else None
    mended = {"as_is": (server.used, server.buffers), "norms": norms, "head": refitted(model, state, federation)}
    mended["both"] = None if norms is None else refitted(model, norms, federation)
    return {
        name: None if each is None else plain(evaluate_model(model, *each, federation.dataset).accuracy)
        for name, each in mended.items()
    }


@torch.no_grad()
def settled(model: Model, state: State, federation: Federation) -> State:
    """The model with running statistics of batches that are drawn from all clients' examples."""
    (params, buffers), generator = state, torch.Generator().manual_seed(0)
    data, order = federation.dataset, torch.from_numpy(federation.order)
    for _ in range(_PASSES):
        drawn = order[torch.randperm(len(order), generator=generator)[:_BATCH]].to(data.x_train.device)
        batch = data.prepare(data.x_train[drawn], tree.first(params).dtype)
        _, buffers = model.apply(params, buffers, batch, train=True)
    return params, buffers


def refitted(model: Model, state: State, federation: Federation) -> State | None:
    """The model with its last layer fitted to the features of all training examples; None if that is not linear."""
    try:
        fitted_layer(model, *state, federation.dataset)
    except ValueError:
        return None
    return {**state[0], **read_out(_FIT, model, *state, federation).layer}, state[1]
