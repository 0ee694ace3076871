"""Means by weight: FedAvg's (McMahan et al., AISTATS 2017) and FedNova's (Wang et al., NeurIPS 2020)."""

from dataclasses import dataclass

from torch import Tensor

from fedskew.core import tree


@dataclass(frozen=True)
class WeightedMean:
    needs_travel = False
    linear = True
    merge = staticmethod(tree.weighted_sum)

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor:
        """p_k = weight_k / sum of weights, over the clients that answered."""
        return weights / weights.sum()


@dataclass(frozen=True)
class NormalizedMean(WeightedMean):
    """delta = tau_eff * sum_k p_k delta_k / tau_k with tau_eff = sum_k p_k tau_k

    tau_k is the client's travel; the learning rate in it cancels.
    """

    needs_travel = True

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor:
        shares = super().coefficients(weights, travel)
        return shares * (shares * travel).sum() / travel
