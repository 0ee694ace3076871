"""The convolutional network of McMahan et al. (2017), whose paper introduced federated averaging.

Two 5x5 convolutions of 32 and 64 channels, each with ReLU and 2x2 max-pooling, a fully connected layer of 512 units
with ReLU, then one linear layer. Without padding, as in most of the literature, images of 3x32x32 and ten classes make
878,538 parameters; `padding=2` keeps the sides, and gives the 1,663,370 that paper reports for MNIST.

LEAF's network for FEMNIST (Caldas et al., 2018) has that padding and 2,048 hidden units: 6,603,710 parameters for 62
classes of 28x28 images.
"""

from functools import partial

from torch import Tensor, nn

from fedskew.models import heads
from fedskew.models.layers import Conv2d, Linear, max_pool2, relu_pool2
from fedskew.models.network import Network, check_images

_KERNEL, _CHANNELS, _HIDDEN, _HIDDEN_OF_LEAF = 5, (32, 64), 512, 2048


class TwoConvolutions(Network):
    """Two convolutions with pooling and a hidden layer: McMahan's network and LEAF's differ in sizes only."""

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, padding: int, hidden: int, head: str = "linear"
    ) -> None:
        super().__init__()
        first, second = _CHANNELS
        self.conv1 = Conv2d(input_shape[0], first, _KERNEL, padding=padding)
        self.conv2 = Conv2d(first, second, _KERNEL, padding=padding)
        height, breadth = (_side_after(size, padding) for size in input_shape[1:])
        self.hidden = Linear(second * height * breadth, hidden)
        self.linear = heads.head(head, hidden, num_classes)
        self.fused = False

    @property
    def together(self) -> bool:
        return self.conv1.suits_together and self.conv2.suits_together

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for conv in (self.conv1, self.conv2):
            if conv.together(x):
                x = conv.relu_pool(x)
            elif self.fused and self.training and conv.bias is not None:
                x = relu_pool2(conv.convolve(x, None), conv.bias)
            else:
                x = max_pool2(conv(x).relu())
        hidden: Tensor = self.hidden(x.flatten(-3)).relu()
        return hidden


def mcmahan(input_shape: tuple[int, ...], num_classes: int, padding: int = 0, *, head: str = "linear") -> nn.Module:
    if padding not in (0, 2):
        raise ValueError(f"mcmahan: padding is {padding}; allowed: 0 or 2")
    check_images("mcmahan", input_shape, partial(_side_after, padding=padding), "; use mlp")
    return TwoConvolutions(input_shape, num_classes, padding, _HIDDEN, head)


def leaf_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    check_images("leaf_cnn", input_shape, partial(_side_after, padding=2), "; use mlp")
    return TwoConvolutions(input_shape, num_classes, 2, _HIDDEN_OF_LEAF)


def _side_after(size: int, padding: int) -> int:
    for _ in _CHANNELS:
        size = max(0, size - _KERNEL + 1 + 2 * padding) // 2
    return size
