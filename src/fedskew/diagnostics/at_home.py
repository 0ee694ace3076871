"""What a model is worth to each client: its accuracy where labels are as frequent as among the client's own examples.

The global test set says how a model does on everybody's labels; a client meets its own. There, test examples of class c
count in proportion to the client's number n_c of training examples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.evaluation import Evaluation, predict
from fedskew.core.round import Server
from fedskew.diagnostics.observing import observe
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import data_of, evaluated, local_model
from fedskew.losses.counts import filled
from fedskew.runs.verdict import BASELINE
from fedskew.simulation.records import Observation
from fedskew.simulation.simulation import Simulation

ByClass = Sequence[float | None]
Client = dict[str, Any]
"""A client's number, its label counts, and its model's accuracy per class after a local update (`local_effect`)."""


def own_mix(by_class: ByClass, counts: Sequence[int]) -> float | None:
    """sum_c n_c a_c / sum_c n_c over the classes with a known accuracy a_c; None if the client holds none of them."""
    known = [(n, right) for n, right in zip(counts, by_class, strict=True) if n and right is not None]
    return sum(n * right for n, right in known) / sum(n for n, _ in known) if known else None


def at_home(seen: Observation, server: Server, updated: dict[str, list[Client]]) -> dict[str, Any]:
    """The global model at its clients: as it is, with their label counts as a prior, and after each method's local
    update."""
    data, clients = data_of(seen), next(iter(updated.values()))
    logits = predict(seen.model, server.used, server.buffers, data, data.x_test, tree.first(server.params).dtype)
    everywhere = Evaluation.of(logits, data.y_test).per_class_accuracy
    return {
        "clients": [client["client"] for client in clients],
        "global": _each(clients, [everywhere] * len(clients)),
        "prior": _each(clients, [with_prior(logits, data.y_test, client["counts"]) for client in clients]),
        "after": {method: _each(rows, [client["after"] for client in rows]) for method, rows in updated.items()},
    }


def with_prior(logits: Tensor, labels: Tensor, counts: Sequence[int]) -> ByClass:
    """The accuracy per class of outputs f + log n, as `fedla` trains them on the client; a missing class counts as one
    example."""
    prior = filled(torch.tensor(counts, device=logits.device), "floor", logits.dtype).log()
    return Evaluation.of(logits + prior, labels).per_class_accuracy


def alone(simulation: Simulation, clients: list[Client]) -> list[float | None]:
    """The same of clients that never met: from the initial model each trains by itself, as many epochs as the run has
    trained so far."""
    run, numbers = simulation.run, np.array([client["client"] for client in clients])
    epochs = simulation.round * run.local_epochs
    seen = observe(Simulation(run), algorithm=BASELINE, local_epochs=epochs, clients=numbers)
    assert seen.update is not None
    models = [local_model(seen, seen.update, k) for k in range(len(numbers))]
    return _each(clients, [evaluated(seen, model).per_class_accuracy for model in models])


def _each(clients: Sequence[Client], by_class: Sequence[ByClass]) -> list[float | None]:
    found = [own_mix(one, client["counts"]) for one, client in zip(by_class, clients, strict=True)]
    rounded: list[float | None] = plain(found)
    return rounded
