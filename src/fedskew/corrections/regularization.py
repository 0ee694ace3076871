"""The dynamic regulariser of FedDyn (Acar et al., ICLR 2021), with h_i for -g_i / alpha in that paper's notation.

    step with g + alpha (w - anchor + h_i)        h_i += delta_i        h += sum_S p_i delta_i        next model += h

h_i and h start at zero; h_i is kept for a client until it is sampled again. p_i is a client's share of all clients'
weights, so that h is the mean of the h_i. At a fixed point every client rests at the global model, and the mean of the
clients' gradients there vanishes. The server uses the deltas that it has anyway, so there is no message. It has only
their aggregate: h is the mean of the h_i only if that is the weighted mean.
"""

from dataclasses import dataclass

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.core.view import Context, Sums
from fedskew.corrections.correction import Correction


@dataclass(frozen=True)
class Dynamic(Correction):
    alpha: float = 0.1

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, above=True)

    @property
    def pull(self) -> float:
        return self.alpha

    def client_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    server_state = client_state

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        anchor, own = context.anchor, context.client
        return {n: g + self.alpha * (params[n] - anchor[n] + own[n]) for n, g in grads.items()}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, tree.add(context.client, delta), {}

    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        return tree.map(lambda h, delta: h + fraction * delta, server, sums.delta)

    def shift(self, server: Params) -> Params:
        return server
