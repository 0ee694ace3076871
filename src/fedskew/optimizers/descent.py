"""Stochastic gradient descent with momentum and weight decay, as PyTorch defines them.

g' = g + weight_decay * w        v = momentum * v + g'        w -= lr * v
"""

import cmath
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.checks import check_number
from fedskew.core.tree import Params
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

        With a pull mu the distance d obeys d_{t+1} - d_t = r (d_t - d_{t-1}) + lr (1 - mu d_t), whose solution is made
        of powers of the roots of x^2 - (1 + r - lr mu) x + r. Without momentum it is (1 - (1 - lr mu)^s) / mu.
        """
        s, r = steps.to(torch.float64), self.momentum
        if not pull and not r:
            return self.lr * s
        if not pull:
            return self.lr * (s - r * (1 - r**s) / (1 - r)) / (1 - r)
        if not r:
            return (1 - (1 - self.lr * pull) ** s) / pull
        middle = (1 + r - self.lr * pull) / 2
        apart = cmath.sqrt(middle * middle - r) or 1e-9  # coinciding roots, moved slightly apart
        roots = middle + apart, middle - apart
        rest, next_rest = 1 / pull, 1 / pull - self.lr  # the distance to the resting point, before and after a step
        first = (next_rest - rest * roots[1]) / (roots[0] - roots[1])
        left = sum(c * torch.pow(_complex(root, s), s) for c, root in ((first, roots[0]), (rest - first, roots[1])))
        assert isinstance(left, Tensor)
        return 1 / pull - left.real


@dataclass(frozen=True)
class LookAhead(SGD):
    """The server's momentum of FedACG (Kim et al., CVPR 2024): clients start where the momentum will take the model.

    sent out: a = w + momentum * m        m = momentum * m + delta        w += m        (delta is measured from a)
    """

    def look(self, params: Params, state: Params) -> Params:
        if not self.momentum:
            return params
        return {name: leaf - self.lr * self.momentum * state[name] for name, leaf in params.items()}


def _complex(value: complex, like: Tensor) -> Tensor:
    return torch.full_like(like, value, dtype=torch.complex128)
