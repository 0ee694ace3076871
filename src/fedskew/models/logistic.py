"""Multinomial logistic regression."""

import math

from torch import Tensor, nn

from fedskew.models.layers import Linear


class Logistic(nn.Module):
    """f = W x + b of the flattened input."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.axes = len(input_shape)
        self.linear = Linear(math.prod(input_shape), num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(x.flatten(-self.axes))
        return out


def logistic(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Logistic(input_shape, num_classes)
