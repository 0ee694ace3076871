"""Stochastic gradient descent with momentum and weight decay, as PyTorch defines them.

g' = g + weight_decay * w        v = momentum * v + g'        w -= lr * v
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
from fedskew.core.view import Sums
from fedskew.optimizers.optimizer import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    lr: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_number("lr", self.lr, above=True)
        check_number("momentum", self.momentum, 0, 1, below=True)
        check_number("weight_decay", self.weight_decay)

    def init(self, params: Params) -> Params:
        return tree.zeros_like(params) if self.momentum else {}

    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        if self.weight_decay:
            grads = {name: grad + self.weight_decay * params[name] for name, grad in grads.items()}
        if self.momentum:
            grads = state = {name: self.momentum * state[name] + grad for name, grad in grads.items()}
        return {name: -rate * grad for name, grad in grads.items()}, state

    @property
    def descent(self) -> tuple[float, float] | None:
        return (self.momentum, self.weight_decay) if type(self).update is SGD.update else None

    def travel(self, steps: Tensor, pull: float = 0.0) -> Tensor:
        """lr * s, and lr * (s - r(1 - r^s)/(1 - r))/(1 - r) with momentum r. Exact without weight decay.

        With a pull mu the distance d is walked, step by step: v = r v + 1 - mu d, d += lr v.
        """
        s, r = steps.to(torch.float64), self.momentum
        if not pull:
            return self.lr * (s - r * (1 - r**s) / (1 - r)) / (1 - r) if r else self.lr * s
        velocity, walked = 0.0, [0.0]
        for _ in range(int(steps.max())):
            velocity = r * velocity + 1 - pull * walked[-1]
            walked.append(walked[-1] + self.lr * velocity)
        return torch.tensor(walked, dtype=torch.float64, device=steps.device)[steps]


@dataclass(frozen=True)
class Extrapolated(SGD):
    """The server's step of FedExP (Jhunjhunwala et al., ICLR 2023): the longer, the more the clients disagree.

    w += max(1, sum_k p_k |delta_k|^2 / (2 (|delta|^2 + eps))) delta        delta = sum_k p_k delta_k
    """

    eps: float = 1e-3

    needs_square = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eps", self.eps, above=True)

    def pace(self, sums: Sums) -> Tensor:
        length = tree.norm(sums.delta, 0).square()
        return self.lr * (sums.square / (2 * (length + self.eps))).clamp(min=1.0)


@dataclass(frozen=True)
class LookAhead(SGD):
    """The server's momentum of FedACG (Kim et al., CVPR 2024): clients start where the momentum will take the model.

    sent out: a = w + momentum * m        m = momentum * m + delta        w += m        (delta is measured from a)
    """

    def look(self, params: Params, state: Params) -> Params:
        if not self.momentum:
            return params
        return {name: leaf - self.lr * self.momentum * state[name] for name, leaf in params.items()}
