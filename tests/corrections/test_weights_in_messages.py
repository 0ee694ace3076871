"""Weights that only clients know, as docs/own-method.md says for FedDisco: the mean of what they send, divided by the
mean of their weights, replaces the plain mean exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import Algorithm, Correction, Run, simulate
from fedskew.core import tree
from fedskew.core.round import Context, Sums
from fedskew.core.tree import Params
from tests.helpers import OWN


@dataclass(frozen=True)
class Told(Correction):
    """w_k is the number of the client's examples, which the server could know as well: the result is known."""

    reveals = "how many examples it has"

    def server_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        weight = context.counts.sum(-1).to(tree.first(delta).dtype)
        weighted = {name: leaf * tree.lead(weight, leaf) for name, leaf in delta.items()}
        return delta, {}, {**tree.prefix(weighted, "delta"), "weight": weight}

    def weigh(self, weights: Tensor) -> Tensor:
        return torch.ones_like(weights)

    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        means = tree.unprefix(sums.message, "delta")
        return {name: leaf / sums.message["weight"] - sums.delta[name] for name, leaf in means.items()}

    def shift(self, server: Params) -> Params:
        return server


def test_weights_in_messages_are_the_weights_of_the_mean() -> None:
    fields = {"dataset": f"{OWN}:ragged_digits", "partition": "natural", "clients": 4, "rounds": 3, "precision": "fp64"}
    fields |= {"model": "logistic", "lr": 0.1, "batch_size": 16, "clients_per_round": 3}
    told, by_size, plain = (
        list(simulate(Run(**fields, weighting=weighting, algorithm=algorithm)))[-1].server.params
        for weighting, algorithm in (
            ("uniform", Algorithm("told", correction=Told())),
            ("samples", "fedavg"),
            ("uniform", "fedavg"),
        )
    )
    torch.testing.assert_close(told, by_size, rtol=1e-12, atol=1e-12)
    assert float(tree.norm(tree.sub(told, plain), 0)) > 1e-3
