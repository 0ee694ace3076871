"""How client deltas become one: `coefficients(weights[K], travel[K]) -> [K]`, and delta = sum_k coefficient_k delta_k.

Linear by design, so a cohort split over machines needs one all-reduce.
"""

from typing import Protocol

from torch import Tensor

from fedskew.aggregators.normalized_mean import normalized_mean
from fedskew.aggregators.weighted_mean import weighted_mean


class Aggregate(Protocol):
    @property
    def needs_travel(self) -> bool: ...

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor: ...


__all__ = ["Aggregate", "normalized_mean", "weighted_mean"]
