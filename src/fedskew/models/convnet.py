"""The paper's convolutional network, as a reader of the proceedings' appendix reports it.

Three 3x3 convolutions of 128 channels without padding, each with batch norm, ReLU and 2x2 max-pooling, then one
linear layer: 512 features on 32x32 images.
"""

from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from fedskew.core.checks import check_choice
from fedskew.models import heads, kernels
from fedskew.models.layers import BatchNorm, Conv2d, GroupNorm, Seen, StandardConv2d, max_pool2, seen
from fedskew.models.network import Network, check_images

_NORMS = ("batch", "group", "none")
_WEIGHTS = {"plain": Conv2d, "standard": StandardConv2d}
_LAYERS = 3


class ConvNet(Network):
    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        norm: str,
        width: int,
        padding: int,
        weights: str,
        head: str,
    ) -> None:
        super().__init__()
        channels = [input_shape[0], *[width] * _LAYERS]
        self.convs = nn.ModuleList(_WEIGHTS[weights](a, b, 3, padding=padding) for a, b in pairwise(channels))
        self.norms = nn.ModuleList(_norm(norm, width) for _ in range(_LAYERS)) if norm != "none" else None
        height, breadth = (_side_after(size, padding) for size in input_shape[1:])
        self.linear = heads.head(head, width * height * breadth, num_classes)
        self.fused, self.power_of_two = False, kernels.fill_tiles(width)

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        first = self.convs[0]
        assert isinstance(first, Conv2d)
        ours = (self.fused and self.power_of_two) or first.together(x)
        counted = seen(x, mask) if self.training and ours else None
        for i, conv in enumerate(self.convs):
            assert isinstance(conv, Conv2d)
            x = self._block(conv, None if self.norms is None else self.norms[i], x, mask, counted)
        return x.flatten(-3)

    @property
    def together(self) -> bool:
        convs = [conv for conv in self.convs if isinstance(conv, Conv2d)]
        return self.norms is not None and isinstance(self.norms[0], BatchNorm) and all(c.suits_together for c in convs)

    def _block(
        self, conv: Conv2d, norm: nn.Module | None, x: Tensor, mask: Tensor | None, counted: Seen | None
    ) -> Tensor:
        """Convolution, norm, ReLU and pooling; as one kernel after the convolution if an engine asks for it."""
        if isinstance(norm, BatchNorm):
            if counted is not None and conv.together(x):
                return norm.after(conv, x, counted)
            if not self.training and conv.together(x):
                return norm.folded(conv, x)
            if counted is not None and self.fused and conv.bias is not None:
                return norm.relu_pool(conv.convolve(x, None), conv.bias, counted)
            return max_pool2(norm(conv(x), mask).relu())
        x = conv(x) if norm is None else norm(conv(x))
        return max_pool2(x.relu())


def cnn(
    input_shape: tuple[int, ...],
    num_classes: int,
    norm: str = "batch",
    width: int = 128,
    padding: int = 0,
    *,
    weights: str = "plain",
    head: str = "linear",
) -> nn.Module:
    check_choice("cnn: norm", norm, _NORMS)
    check_choice("cnn: weights", weights, _WEIGHTS)
    if weights == "standard" and norm == "none":
        raise ValueError("cnn: weights=standard with norm=none; allowed with these weights: norm=group, norm=batch")
    if width < 1 or padding not in (0, 1):
        raise ValueError(f"cnn: width={width}, padding={padding}; allowed: width 1 or more, padding 0 or 1")
    hint = "; use cnn:padding=1 or mlp" if padding == 0 else ""
    check_images("cnn", input_shape, partial(_side_after, padding=padding), hint)
    return ConvNet(input_shape, num_classes, norm, width, padding, weights, head)


def _norm(norm: str, width: int) -> nn.Module:
    if norm == "batch":
        return BatchNorm(width)
    groups = next(g for g in (32, 16, 8, 4, 2, 1) if width % g == 0 and (width // g >= 2 or g == 1))
    return GroupNorm(groups, width)


def _side_after(size: int, padding: int) -> int:
    for _ in range(_LAYERS):
        size = (size - 2 + 2 * padding) // 2
    return size
