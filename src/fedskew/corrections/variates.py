"""The control variates of SCAFFOLD (Karimireddy et al., ICML 2020), option II.

    step with g - c_i + c        c_i+ = c_i - c - delta_i / travel_i        c += sum_S p_i (c_i+ - c_i)

c_i and c start at zero, cover parameters only, and c_i is kept for a client until it is sampled again. p_i is the
client's share of all clients' weights, as in the mean of the deltas, so that c = sum_i p_i c_i and a fixed point is one
of sum_i p_i f_i. The paper's own rule, `mean=uniform`, has p_i = 1/N whatever the weights of the deltas: even if deltas
are weighted by examples, the fixed point is that of the uniform mean of the clients' objectives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.checks import check_choice
from fedskew.core.tree import Params
from fedskew.core.view import Context, Sums
from fedskew.corrections.correction import Correction


@dataclass(frozen=True)
class ControlVariates(Correction):
    mean: str = "weighted"

    needs_travel = True
    reveals = "how the client's mean gradient differs from that of all clients"

    def __post_init__(self) -> None:
        check_choice("mean", self.mean, ("weighted", "uniform"))

    def client_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    server_state = client_state

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {name: grad - context.client[name] + context.server[name] for name, grad in grads.items()}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        change = tree.divide(delta, context.travel)
        for name, leaf in change.items():
            leaf.add_(context.server[name]).neg_()
        return delta, tree.add(context.client, change), change

    def weigh(self, weights: Tensor) -> Tensor:
        return weights if self.mean == "weighted" else torch.ones_like(weights)

    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        return tree.map(lambda c, change: c + fraction * change, server, sums.message)
