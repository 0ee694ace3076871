"""The coordinate-wise trimmed mean, and the median as its limit (Yin et al., ICML 2018).

    delta[j] = mean of delta_k[j] over the clients, without the ceil(share * K) smallest and as many largest

As long as no more clients attack than are cut off at one end, they cannot move a coordinate beyond what the others
sent. Every client counts the same: with weights, claiming many examples would buy votes. This is not a sum, so one
process must have all clients of a round. It costs accuracy under label skew: what only a few clients know is cut off
just as an attack would be.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params


@dataclass(frozen=True)
class TrimmedMean:
    """`share` of the clients is cut off at each end, rounded up as long as one client is left; 0.5 is the median."""

    share: float
    needs_travel = False
    linear = False
    ignores_weights = True

    def __post_init__(self) -> None:
        check_number("share", self.share, 0, 0.5, above=True)

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor:
        return weights / weights.sum()

    def merge(self, values: Params, coefficients: Tensor) -> Params:
        """The trimmed mean of values [K, ...]; coefficients are ignored, since all clients count the same."""
        return tree.map(self._trimmed, values)

    def _trimmed(self, leaf: Tensor) -> Tensor:
        count = len(leaf)
        cut = min(math.ceil(self.share * count - 1e-9), (count - 1) // 2)
        real = leaf if leaf.is_floating_point() else leaf.double()
        return real.sort(0).values[cut : count - cut].mean(0)
