"""ResNet-18 (He et al., 2016) for small images, with batch or group norm.

The first layer is one 3x3 convolution without pooling, as is usual for CIFAR: with stride 1 for images up to 32 wide,
and stride 2 for larger ones, so that 64x64 images have the same feature maps as 32x32 ones from there on. Four stages
of two blocks with 64, 128, 256 and 512 channels follow, then the mean over positions and one linear layer. A shortcut
that changes shape is a 1x1 convolution with a norm. Convolutions start as in that paper: normal, variance
2 / (output channels * kernel area). Ten classes of 3x32x32 images make 11,173,962 parameters with either norm.
Group norm (Wu and He, 2018) has 32 groups.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from fedskew.core.checks import check_choice
from fedskew.models import heads, kernels
from fedskew.models.layers import BatchNorm, Conv2d, GroupNorm, Seen, StandardConv2d, seen
from fedskew.models.network import Network, check_images

_NORMS = ("batch", "group")
_WEIGHTS: dict[str, Callable[..., Conv2d]] = {"plain": partial(Conv2d, bias=False), "standard": StandardConv2d}
_WIDTHS = (64, 128, 256, 512)
_GROUPS = 32
_SMALL = 32


class Normed(nn.Module):
    """relu(norm(convolution of x) + residual); the residual and the ReLU are optional, and there is no bias."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, norm: str, weights: str) -> None:
        super().__init__()
        self.conv = _WEIGHTS[weights](inputs, outputs, kernel, stride=stride, padding=kernel // 2)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = BatchNorm(outputs) if norm == "batch" else GroupNorm(_GROUPS, outputs)

    def forward(
        self, x: Tensor, mask: Tensor | None, counted: Seen | None, residual: Tensor | None = None, *, relu: bool = True
    ) -> Tensor:
        """What `counted` holds is for our kernels, which then do all but the convolution."""
        x = self.conv(x)
        if counted is not None and isinstance(self.norm, BatchNorm) and kernels.fill_tiles(x.shape[1]):
            return self.norm.sum_relu(x, residual, counted, relu=relu)
        x = self.norm(x, mask) if isinstance(self.norm, BatchNorm) else self.norm(x)
        x = x if residual is None else residual + x
        return x.relu() if relu else x


class Block(nn.Module):
    """relu(shortcut(x) + f(x)) with two 3x3 convolutions in f."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, weights: str) -> None:
        super().__init__()
        self.first = Normed(inputs, outputs, 3, stride, norm, weights)
        self.second = Normed(outputs, outputs, 3, 1, norm, weights)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else Normed(inputs, outputs, 1, stride, norm, weights)

    def forward(self, x: Tensor, mask: Tensor | None, counted: Seen | None) -> Tensor:
        straight = x if self.shortcut is None else self.shortcut(x, mask, counted, relu=False)
        out: Tensor = self.second(self.first(x, mask, counted), mask, counted, straight)
        return out


class ResNet(Network):
    def __init__(self, input_shape: tuple[int, ...], num_classes: int, norm: str, weights: str, head: str) -> None:
        super().__init__()
        stride = 1 if max(input_shape[1:]) <= _SMALL else 2
        self.stem = Normed(input_shape[0], _WIDTHS[0], 3, stride, norm, weights)
        self.blocks = nn.ModuleList()
        inputs = _WIDTHS[0]
        for outputs in _WIDTHS:
            self.blocks.append(Block(inputs, outputs, 1 if outputs == inputs else 2, norm, weights))
            self.blocks.append(Block(outputs, outputs, 1, norm, weights))
            inputs = outputs
        self.linear = heads.head(head, inputs, num_classes)
        self.fused = False

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        counted = seen(x, mask) if self.fused and self.training and x.ndim == 4 else None
        x = self.stem(x, mask, counted)
        for block in self.blocks:
            x = block(x, mask, counted)
        return x.mean((-2, -1))


def resnet18(
    input_shape: tuple[int, ...], num_classes: int, norm: str = "batch", *, weights: str = "plain", head: str = "linear"
) -> nn.Module:
    check_choice("resnet18: norm", norm, _NORMS)
    check_choice("resnet18: weights", weights, _WEIGHTS)
    check_images("resnet18", input_shape)
    return ResNet(input_shape, num_classes, norm, weights, head)
