"""The proximal term of FedProx (Li et al., MLSys 2020): mu/2 ||w - anchor||^2 added to the local objective."""

from dataclasses import dataclass

from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.core.view import Context
from fedskew.corrections.correction import Correction


@dataclass(frozen=True)
class Proximal(Correction):
    """grad + mu (w - anchor), the gradient of the *squared* distance to the global model."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        check_number("mu", self.mu)

    @property
    def pull(self) -> float:
        return self.mu

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {name: grad + self.mu * (params[name] - context.anchor[name]) for name, grad in grads.items()}
