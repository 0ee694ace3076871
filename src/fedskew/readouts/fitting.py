"""The model as it was trained, or with its last linear layer fitted to the examples of all clients.

Under label skew every client pulls the last layer towards its own classes, and much of what a global model lacks is
there. With the features fixed, the mean loss of that layer is convex, and its gradient is the mean of the clients'
gradients, so a server that asks for it fits the layer as if all examples were in one place: no local steps, no drift.
This is the classifier re-training of Kang et al. (ICLR 2020) with exact federated gradients; CCVR (Luo et al., NeurIPS
2021) has the same aim and collects statistics of features instead.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.core.checks import check_number

Flat = NDArray[np.float64]
Ask = Callable[[Tensor, Tensor], tuple[float, Tensor, Tensor]]
"""(weight [C, F], bias [C]) -> the mean loss over the examples of all clients, and its gradient by both; or `Fewer`."""


class Fewer(Exception):
    """Not all clients answered an ask. The next one goes to those that did, so it is about another mean."""


class Readout(Protocol):
    """`asks` is how often all clients are asked at most; 0 leaves the model as it was trained."""

    @property
    def asks(self) -> int: ...

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        """The last layer to be used, from the trained one."""
        ...


@dataclass(frozen=True)
class AsTrained:
    """The model as it is."""

    asks = 0

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        return weight, bias


@dataclass(frozen=True)
class Fitted:
    """The minimum over all clients' examples of mean loss + pull/2 |layer - trained layer|^2.

    Limited-memory BFGS starts at the trained layer and asks all clients so many times at most. The pull keeps a layer
    with many features from fitting the training examples alone.

    If a client is lost, the descent begins anew on the mean of the others, at the best layer so far. The asks are still
    as many in all, so a fit ends whatever clients do, and nothing that was found is lost: the mean is convex, so its
    minimum does not depend on where the descent begins. If no ask is left, the best layer so far is the result.
    """

    asks: int
    pull: float

    def __post_init__(self) -> None:
        if self.asks < 2:
            raise ValueError(f"asks is {self.asks}; allowed: 2 or more, since the first is about the trained layer")
        check_number("pull", self.pull)

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        from scipy.optimize import minimize  # slow to import

        trained = torch.cat([weight.detach().flatten(), bias.detach()]).double().cpu().numpy()
        rows, left, best = weight.numel(), self.asks, (math.inf, trained)

        def parts(flat: Flat) -> tuple[Tensor, Tensor]:
            both = torch.from_numpy(flat.copy()).to(weight)
            return both[:rows].view_as(weight), both[rows:]

        def asked(flat: Flat) -> tuple[float, Flat]:
            nonlocal left, best
            if not left:
                raise StopIteration
            left -= 1
            loss, by_weight, by_bias = ask(*parts(flat))
            slope, away = torch.cat([by_weight.flatten(), by_bias]).double().cpu().numpy(), flat - trained
            value = loss + self.pull / 2 * float(away @ away)
            best = min(best, (value, flat.copy()), key=lambda each: each[0])
            return value, slope + self.pull * away

        with suppress(StopIteration):
            while True:
                try:
                    minimize(asked, best[1], method="L-BFGS-B", jac=True)
                    break
                except Fewer:
                    best = math.inf, best[1]
        return parts(best[1])
