"""What both sides of a round step with: a client along its gradient, the server along -delta."""

from abc import ABC, abstractmethod

from torch import Tensor

from fedskew.core.tree import Params


class Optimizer(ABC):
    """`lr` is the rate it is made with; a step takes the rate to use, so that one in fixed memory can stand for it."""

    lr: float

    @abstractmethod
    def init(self, params: Params) -> Params:
        """The state before the first step."""

    @abstractmethod
    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        """What to add to the parameters, and the new state."""

    @abstractmethod
    def travel(self, steps: Tensor, pull: float = 0.0) -> Tensor:
        """How far it moves in so many steps under a constant unit gradient, with a term `pull` * distance added to it;
        an error where that has no answer."""

    def look(self, params: Params, state: Params) -> Params:
        """The model that a server with this optimiser sends out."""
        return params
