"""Multinomial logistic regression, and a multi-layer perceptron with ReLU."""

import math
from itertools import pairwise

from torch import Tensor, nn

from fedskew.models import heads
from fedskew.models.layers import Linear
from fedskew.models.network import Network

_DEEPEST = 1000


class Logistic(Network):
    """f = W x + b of the flattened input."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.axes = len(input_shape)
        self.linear = Linear(math.prod(input_shape), num_classes)

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x.flatten(-self.axes)


class Perceptron(Network):
    """`depth` hidden layers of `hidden` units, then one linear layer."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, hidden: int, depth: int, head: str) -> None:
        super().__init__()
        self.axes = len(input_shape)
        sizes = [math.prod(input_shape), *[hidden] * depth]
        self.hidden = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.linear = heads.head(head, sizes[-1], num_classes)

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x.flatten(-self.axes)
        for layer in self.hidden:
            x = layer(x).relu()
        return x


def mlp(
    input_shape: tuple[int, ...], num_classes: int, hidden: int = 64, depth: int = 1, *, head: str = "linear"
) -> nn.Module:
    if hidden < 1 or not 1 <= depth <= _DEEPEST:
        raise ValueError(f"mlp with hidden={hidden}, depth={depth}; allowed: hidden 1 or more, depth 1 to {_DEEPEST:,}")
    return Perceptron(input_shape, num_classes, hidden, depth, head)
