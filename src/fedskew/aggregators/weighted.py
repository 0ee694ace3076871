"""The weighted mean of FedAvg (McMahan et al., AISTATS 2017)."""

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


weighted_mean = WeightedMean
