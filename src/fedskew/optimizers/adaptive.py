"""Adaptive optimisers as FedOpt states them (Reddi et al., ICLR 2021, algorithm 2), with gradient g = -delta.

    m = b1 m + (1 - b1) g        x -= lr * m / (sqrt(v) + eps)
    adagrad: v += g^2      adam: v = b2 v + (1 - b2) g^2      yogi: v -= (1 - b2) g^2 sign(v - g^2)

v starts at eps^2 and there is no bias correction, which is where they differ from torch.optim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.optimizers.optimizer import Optimizer

_RULES = {
    "adagrad": lambda v, g2, b2: v + g2,
    "adam": lambda v, g2, b2: b2 * v + (1 - b2) * g2,
    "yogi": lambda v, g2, b2: v - (1 - b2) * g2 * torch.sign(v - g2),
}


@dataclass(frozen=True)
class Adaptive(Optimizer):
    rule: str
    lr: float
    b1: float
    b2: float
    eps: float

    def __post_init__(self) -> None:
        for name in ("lr", "eps"):
            check_number(name, getattr(self, name), above=True)
        for name in ("b1", "b2"):
            check_number(name, getattr(self, name), 0, 1, below=True)

    def init(self, params: Params) -> Params:
        v = tree.map(lambda leaf: torch.full_like(leaf, self.eps**2), params)
        return tree.prefix(tree.zeros_like(params), "m") | tree.prefix(v, "v")

    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        m = tree.map(lambda m, g: self.b1 * m + (1 - self.b1) * g, tree.unprefix(state, "m"), grads)
        v = tree.map(lambda v, g: _RULES[self.rule](v, g * g, self.b2), tree.unprefix(state, "v"), grads)
        updates = tree.map(lambda m, v: -rate * m / (v.sqrt() + self.eps), m, v)
        return updates, tree.prefix(m, "m") | tree.prefix(v, "v")

    def travel(self, steps: Tensor, pull: float = 0.0) -> Tensor:
        raise ValueError(f"{self.rule} has no defined travel: SCAFFOLD and FedNova need sgd on the client")


def adagrad(lr: float = 0.01, eps: float = 1e-3) -> Adaptive:
    return Adaptive("adagrad", lr, 0.0, 0.0, eps)


def adam(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> Adaptive:
    return Adaptive("adam", lr, b1, b2, eps)


def yogi(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> Adaptive:
    return Adaptive("yogi", lr, b1, b2, eps)
