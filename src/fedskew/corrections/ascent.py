"""Where sharpness-aware minimisation takes its gradient (Foret et al., ICLR 2021; in FedSAM Qu et al., ICML 2022).

a step follows the gradient at w + rho g / |g|,  g the gradient at w,  |g| each client's own norm
"""

from dataclasses import dataclass

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.core.view import Context


@dataclass(frozen=True)
class Sharpness:
    """An ascent: (params, gradient, context of the round) -> where to take the gradient. rho = 0 stays at w."""

    rho: float = 0.05

    def __post_init__(self) -> None:
        check_number("rho", self.rho)

    def __call__(self, params: Params, grads: Params, context: Context) -> Params:
        scale = self.rho / (tree.norm(grads, context.travel.ndim) + 1e-12)
        return {name: leaf + tree.lead(scale, leaf) * grads[name] for name, leaf in params.items()}
