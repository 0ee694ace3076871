"""No correction: the gradient as it is."""

from dataclasses import dataclass

from torch import Tensor

from fedskew.tree import Params


@dataclass(frozen=True)
class NoCorrection:
    needs_travel = False

    def init(self, params: Params) -> Params:
        return {}

    def grad(self, grads: Params, params: Params, anchor: Params, client: Params, server: Params) -> Params:
        return grads

    def finish(self, client: Params, server: Params, delta: Params, travel: Tensor) -> tuple[Params, Params]:
        return {}, {}

    def absorb(self, server: Params, messages: Params, fraction: float) -> Params:
        return {}


none = NoCorrection
