"""The normalised mean of FedNova (Wang et al., NeurIPS 2020).

    delta = tau_eff * sum_k p_k delta_k / tau_k        tau_eff = sum_k p_k tau_k

tau_k is the client's travel; the learning rate in it cancels.
"""

from dataclasses import dataclass

from torch import Tensor

from fedskew.core import tree


@dataclass(frozen=True)
class NormalizedMean:
    needs_travel = True
    linear = True
    merge = staticmethod(tree.weighted_sum)

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor:
        shares = weights / weights.sum()
        return shares * (shares * travel).sum() / travel


normalized_mean = NormalizedMean
