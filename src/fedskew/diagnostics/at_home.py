"""What a model is worth to each client: how often it is right about what the client meets.

That is the client's own test examples, if clients have some. Otherwise it is the common ones, of which those of class c
count in proportion to the client's number n_c of training examples: clients are taken to differ in their labels alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.core.evaluation import Evaluation
from fedskew.core.round import Server
from fedskew.diagnostics.observing import train_alone
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import client_counts, data_of, local_model, on_test_set
from fedskew.losses.counts import log_prior
from fedskew.simulation.records import Observation
from fedskew.simulation.simulation import Simulation

ByClass = Sequence[float | None]


@dataclass(frozen=True)
class Client:
    """A client's number and label counts, the labels of the test examples, and which of these are its own, if clients
    have some."""

    number: int
    counts: list[int]
    labels: Tensor
    own: Tensor | None

    def worth(self, logits: Tensor) -> float | None:
        """What outputs for the test examples are worth to the client; None if nothing that it meets is tested."""
        if self.own is None:
            return own_mix(Evaluation.of(logits, self.labels).per_class_accuracy, self.counts)
        right = (logits.argmax(-1) == self.labels)[self.own]
        return right.double().mean().item() if len(right) else None


def own_mix(by_class: ByClass, counts: Sequence[int]) -> float | None:
    """sum_c n_c a_c / sum_c n_c over the classes with a known accuracy a_c; None if the client holds none of them."""
    known = [(n, right) for n, right in zip(counts, by_class, strict=True) if n and right is not None]
    return sum(n * right for n, right in known) / sum(n for n, _ in known) if known else None


def at_home(
    views: Mapping[str, Observation], looked: Mapping[str, Any], server: Server, limit: int | None
) -> dict[str, Any]:
    """The global model at the first clients of a cohort: as it is, with their label counts as a prior, and after the
    local update of each method; `looked` has what a probe found of that."""
    seen = next(iter(views.values()))
    clients, federation = _clients(seen, limit), seen.cohort.federation
    logits = on_test_set(seen, server.used, server.buffers)
    counts = [torch.tensor(client.counts, device=logits.device) for client in clients]
    everybody = torch.from_numpy(federation.counts(np.arange(federation.num_clients)).sum(0)).to(logits.device)
    both = [*zip(clients, counts, strict=True)]
    return {
        "clients": [client.number for client in clients],
        "own_tests": clients[0].own is not None,
        "global": plain([client.worth(logits) for client in clients]),
        "prior": plain([client.worth(logits + log_prior(n)) for client, n in both]),
        "relative": plain([client.worth(logits + log_prior(n, everybody)) for client, n in both]),
        "after": {name: _after(view, clients, looked[name]["class_accuracy"]) for name, view in views.items()},
    }


def alone(simulation: Simulation, seen: Observation, limit: int | None) -> list[float | None]:
    """The same of models that each client has trained by itself (`train_alone`); None for one that is not finite."""
    models = train_alone(simulation, seen.cohort.clients[:limit])
    found = [
        client.worth(on_test_set(seen, model.params, model.buffers)) if simulation.plan.finite(model) else None
        for client, model in zip(_clients(seen, limit), models, strict=True)
    ]
    rounded: list[float | None] = plain(found)
    return rounded


def _clients(seen: Observation, limit: int | None) -> list[Client]:
    data, numbers = data_of(seen), seen.cohort.clients[:limit].tolist()
    owner = data.client_test if seen.run.partition == "natural" else None
    return [
        Client(number, counts, data.y_test, None if owner is None else owner == number)
        for number, counts in zip(numbers, client_counts(seen, limit), strict=True)
    ]


def _after(seen: Observation, clients: Sequence[Client], effect: Mapping[str, Any]) -> list[float | None]:
    """What clients' own models are worth to them after a local update (`class_accuracy`)."""
    assert seen.update is not None
    found = []
    for k, (client, row) in enumerate(zip(clients, effect["clients"], strict=True)):
        if client.own is None:
            found.append(own_mix(row["after"], client.counts))
        else:
            found.append(client.worth(on_test_set(seen, *local_model(seen, seen.update, k))))
    rounded: list[float | None] = plain(found)
    return rounded
