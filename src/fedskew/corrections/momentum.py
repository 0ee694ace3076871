"""The client-level momentum of FedCM (Xu et al., 2021): every local step follows the last round's common direction.

    step with alpha g + (1 - alpha) m        m = -delta / travel of the last round, zero in the first

m is a gradient: the aggregated delta over how far an optimiser travels under a unit gradient. The server keeps it and
sends it with the model; clients keep nothing and send nothing more.
"""

from dataclasses import dataclass

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.core.view import Context, Sums
from fedskew.corrections.correction import Correction


@dataclass(frozen=True)
class ClientMomentum(Correction):
    """alpha = 1 is FedAvg."""

    alpha: float = 0.1

    needs_travel = True

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0, 1, above=True)

    def server_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {n: self.alpha * g + (1 - self.alpha) * context.server[n] for n, g in grads.items()}

    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        return tree.neg(tree.divide(sums.delta, sums.travel))
