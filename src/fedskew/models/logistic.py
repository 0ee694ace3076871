"""Multinomial logistic regression."""

import math

from torch import Tensor, nn

from fedskew.models.layers import Linear
from fedskew.models.network import Network


class Logistic(Network):
    """f = W x + b of the flattened input."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.axes = len(input_shape)
        self.linear = Linear(math.prod(input_shape), num_classes)

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x.flatten(-self.axes)


def logistic(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Logistic(input_shape, num_classes)
