"""The optimiser of both sides of a round: a client steps along its gradient, the server along -delta."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from fedskew.core.tree import Params
from fedskew.core.view import Sums


class Optimizer(ABC):
    """`lr` is its configured rate; a step takes the rate to use, so that a rate in fixed memory can replace it.
    `needs_square` means that `pace` uses the squared norms of the clients' deltas."""

    lr: float
    needs_square: ClassVar[bool] = False

    @abstractmethod
    def init(self, params: Params) -> Params:
        """The state before the first step."""

    @abstractmethod
    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        """What to add to the parameters, and the new state."""

    @abstractmethod
    def travel(self, steps: Tensor, pull: float = 0.0) -> Tensor:
        """How far it moves in this many steps under a constant unit gradient, with a term `pull` * distance added to
        it; raises an error if that is undefined."""

    @property
    def descent(self) -> tuple[float, float] | None:
        """Momentum and weight decay, if `update` is gradient descent with these: an engine may then do it in place."""
        return None

    def pace(self, sums: Sums) -> float | Tensor:
        """The rate of a server's step after a round with these sums."""
        return self.lr

    def look(self, params: Params, state: Params) -> Params:
        """The model that a server with this optimiser sends to clients."""
        return params
