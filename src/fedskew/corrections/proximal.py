"""The proximal term of FedProx (Li et al., MLSys 2020): mu/2 ||w - anchor||^2 added to the local objective."""

import math
from dataclasses import dataclass

from torch import Tensor

from fedskew.tree import Params


@dataclass(frozen=True)
class Proximal:
    """grad + mu (w - anchor), the gradient of the *squared* distance to the global model."""

    mu: float = 0.01
    needs_travel = False

    def __post_init__(self) -> None:
        if not (self.mu >= 0 and math.isfinite(self.mu)):
            raise ValueError(f"mu is {self.mu}; allowed: 0 or more")

    def init(self, params: Params) -> Params:
        return {}

    def grad(self, grads: Params, params: Params, anchor: Params, client: Params, server: Params) -> Params:
        return {name: grad + self.mu * (params[name] - anchor[name]) for name, grad in grads.items()}

    def finish(self, client: Params, server: Params, delta: Params, travel: Tensor) -> tuple[Params, Params]:
        return {}, {}

    def absorb(self, server: Params, messages: Params, fraction: float) -> Params:
        return {}


proximal = Proximal
