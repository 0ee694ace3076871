"""Stochastic gradient descent with momentum and weight decay, as PyTorch defines them.

g' = g + weight_decay * w        v = momentum * v + g'        w -= lr * v
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import tree
from fedskew.tree import Params


@dataclass(frozen=True)
class SGD:
    lr: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr is {self.lr}; allowed: above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; allowed: 0 or more, below 1")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay is {self.weight_decay}; allowed: 0 or more")

    def init(self, params: Params) -> Params:
        return tree.zeros_like(params) if self.momentum else {}

    def update(self, grads: Params, state: Params, params: Params) -> tuple[Params, Params]:
        if self.weight_decay:
            grads = {name: grad + self.weight_decay * params[name] for name, grad in grads.items()}
        if self.momentum:
            grads = state = {name: self.momentum * state[name] + grad for name, grad in grads.items()}
        return {name: -self.lr * grad for name, grad in grads.items()}, state

    def travel(self, steps: Tensor) -> Tensor:
        """lr * s, and lr * (s - r(1 - r^s)/(1 - r))/(1 - r) with momentum r. Exact without weight decay."""
        s, r = steps.to(torch.float64), self.momentum
        return self.lr * (s - r * (1 - r**s) / (1 - r)) / (1 - r)


sgd = SGD
