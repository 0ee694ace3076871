"""How client deltas become one.

`coefficients(weights[K], travel[K]) -> [K]` gives each client's share; `merge(deltas[K, ...], coefficients)` turns many
deltas into one. A `linear` aggregate merges by sum_k coefficient_k delta_k: a cohort split over machines needs one
all-reduce. Any other needs all clients of a round in one process. One that `ignores_weights` is refused with any but
uniform weights. Batch statistics are merged as deltas are, by the clients' weights.
"""

from typing import Protocol

from torch import Tensor

from fedskew.aggregators.means import NormalizedMean as normalized_mean
from fedskew.aggregators.means import WeightedMean as weighted_mean
from fedskew.aggregators.trimmed import TrimmedMean as trimmed_mean
from fedskew.core.tree import Params


class Aggregate(Protocol):
    @property
    def needs_travel(self) -> bool: ...

    @property
    def linear(self) -> bool: ...

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor: ...

    def merge(self, values: Params, coefficients: Tensor) -> Params: ...


__all__ = ["Aggregate", "normalized_mean", "trimmed_mean", "weighted_mean"]
