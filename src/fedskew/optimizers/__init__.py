"""Optimisers for both sides of the round: the client's local steps and the server's step along -delta.

`init(params)` begins the state; `update(grads, state, params)` gives what to add to the parameters and the new state;
`travel(steps)` is how far the optimiser moves under a constant unit gradient, or an error where that has no answer.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from fedskew.optimizers.adaptive import adagrad, adam, yogi
from fedskew.optimizers.sgd import sgd
from fedskew.tree import Params


class Optimizer(Protocol):
    def init(self, params: Params) -> Params: ...

    def update(self, grads: Params, state: Params, params: Params) -> tuple[Params, Params]: ...

    def travel(self, steps: Tensor) -> Tensor: ...


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adagrad": adagrad, "adam": adam, "yogi": yogi}

__all__ = ["OPTIMIZERS", "Optimizer", "adagrad", "adam", "sgd", "yogi"]
