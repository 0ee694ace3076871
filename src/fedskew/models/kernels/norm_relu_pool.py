"""Batch norm, ReLU and 2x2 max-pooling in one pass forward and one backward, on channels-last images.

PyTorch reads and writes the largest activation of a convolutional network about ten times in these three layers. Here
the forward pass reads it twice (statistics, then everything else), and the backward pass once: gradients are sparse
after pooling, so the sums that batch norm needs come from the pooled images alone.

    y = relu(weight * xhat + bias), pooled;  xhat = (x + shift - mean) * rstd
    dx = weight * rstd * (g - k * sum(g) - xhat * k * sum(g * xhat))

k is 1 / number of values, or 0 if statistics are given; g is the gradient at the largest of each window where that is
above zero. `shift` is the bias of the convolution before: it cancels in the batch statistics, so it is only carried to
the running mean. Masked images are ignored. Sums are taken in a fixed order, so results repeat to the bit.
"""

import torch
import triton
from torch import Tensor

from fedskew.models.kernels.pooling import gradient_sums, gradients, largest, moments, spread_back, statistics

_ROWS, _WARPS = 32, 4
_PROGRAMS = 264  # two for each multiprocessor of an H100 or H200


def _split(rows: int) -> tuple[int, int]:
    """How many programs share this many rows, and how many tiles each takes."""
    tiles = triton.cdiv(rows, _ROWS)
    programs = min(_PROGRAMS, tiles)
    return programs, triton.cdiv(tiles, programs)


@torch.library.custom_op("fedskew::norm_relu_pool", mutates_args=())
def _op(
    x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor, images: Tensor,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    x = x.contiguous(memory_format=torch.channels_last)
    n, channels, height, width = x.shape
    y, new_mean, new_var, top, which, use = _outputs(x, mean, var)
    programs, tiles = _split(n * height * width)
    part = torch.empty(programs, 3, channels, dtype=torch.float32, device=x.device)
    moments[(programs, 1)](
        x, mask, part, n * height * width, height * width, tiles, programs,
        C=channels, WIDE=channels, ROWS=_ROWS, num_warps=_WARPS,
    )  # fmt: skip
    wide = min(8, channels)
    statistics[(channels // wide, 1)](
        part, images, shift, mean, var, new_mean, new_var, use, momentum, eps, programs,
        C=channels, WIDE=wide, CHUNK=256, num_warps=_WARPS,
    )  # fmt: skip
    _pool(x, use, weight, bias, y, top, which, norm=True)
    return y, new_mean, new_var, top, which, use


def _outputs(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    n, channels, height, width = x.shape
    shape = n, channels, height // 2, width // 2
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    use = torch.empty(3, channels, dtype=torch.float32, device=x.device)
    which = torch.empty_like(y, dtype=torch.uint8)
    return y, torch.empty_like(mean), torch.empty_like(var), torch.empty_like(y), which, use


def _pool(
    x: Tensor, use: Tensor, weight: Tensor, bias: Tensor, y: Tensor, top: Tensor, which: Tensor, *, norm: bool
) -> None:
    n, channels, height, width = x.shape
    ph, pw = height // 2, width // 2
    largest[(triton.cdiv(n * ph * pw, _ROWS), 1)](
        x, use, weight, bias, y, top, which, n, height, width, ph, pw,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip


@_op.register_fake
def _(x, shift, weight, bias, mean, var, mask, images, momentum, eps):
    return _outputs(x, mean, var)


@torch.library.custom_op("fedskew::norm_relu_pool_backward", mutates_args=())
def _op_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mask: Tensor, top: Tensor, which: Tensor, use: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _backwards(grad, x, weight, mask, top, which, use, norm=True)


def _backwards(
    grad: Tensor, x: Tensor, weight: Tensor, mask: Tensor, top: Tensor, which: Tensor, use: Tensor, *, norm: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx and the gradients of weight, bias and shift; without norm only x's shape is used, and bias is the shift."""
    x = x.contiguous(memory_format=torch.channels_last)
    grad = grad.contiguous(memory_format=torch.channels_last)
    n, channels, height, width = x.shape
    ph, pw, ch, cw = height // 2, width // 2, (height + 1) // 2, (width + 1) // 2
    dx = torch.empty_like(x)
    d_weight, d_bias, d_shift = (torch.empty(channels, dtype=torch.float32, device=x.device) for _ in range(3))
    programs, tiles = _split(n * ph * pw)
    part = torch.empty(programs, 2, channels, dtype=torch.float32, device=x.device)
    gradient_sums[(programs, 1)](
        grad, top, which, use, part, n * ph * pw, tiles, programs,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    wide = min(8, channels)
    gradients[(channels // wide, 1)](
        part, use, weight, d_weight, d_bias, d_shift, programs,
        C=channels, WIDE=wide, CHUNK=256, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    spread_back[(triton.cdiv(n * ch * cw, _ROWS), 1)](
        x, grad, which, mask, use, weight, d_weight, d_bias, dx, n, height, width, ph, pw, ch, cw,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    return dx, d_weight, d_bias, d_shift


@_op_backward.register_fake
def _(grad, x, weight, mask, top, which, use):
    one = torch.empty(x.shape[1], dtype=torch.float32, device=x.device)
    return torch.empty_like(x, memory_format=torch.channels_last), one, torch.empty_like(one), torch.empty_like(one)


def _keep(ctx, inputs, output):
    x, _, weight, _, _, _, mask, _, _, _ = inputs
    _, _, _, top, which, use = output
    ctx.save_for_backward(x, weight, mask, top, which, use)


def _differentiate(ctx, grad, *_):
    x, weight, mask, top, which, use = ctx.saved_tensors
    dx, d_weight, d_bias, d_shift = _op_backward(grad, x, weight, mask, top, which, use)
    kind = weight.dtype
    return dx, d_shift.to(kind), d_weight.to(kind), d_bias.to(kind), None, None, None, None, None, None


_op.register_autograd(_differentiate, setup_context=_keep)


def norm_relu_pool(
    x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor, images: Tensor,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Pooled images [n, C, H/2, W/2] and the running statistics after this batch.

    C is a power of two. The mask is 1 or 0 for each image, as bytes; `images` is how many it keeps.
    """
    y, new_mean, new_var, *_ = _op(x, shift, weight, bias, mean, var, mask, images, momentum, eps)
    return y, new_mean, new_var


@torch.library.custom_op("fedskew::relu_pool", mutates_args=())
def _plain(x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    x = x.contiguous(memory_format=torch.channels_last)
    y, _, _, _, which, _ = _outputs(x, shift, shift)
    _pool(x, shift, shift, shift, y, y, which, norm=False)
    return y, which


@_plain.register_fake
def _(x, shift):
    y, _, _, _, which, _ = _outputs(x, shift, shift)
    return y, which


@torch.library.custom_op("fedskew::relu_pool_backward", mutates_args=())
def _plain_backward(grad: Tensor, x: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
    dx, _, d_shift, _ = _backwards(grad, x, grad, grad, grad, which, grad, norm=False)
    return dx, d_shift


@_plain_backward.register_fake
def _(grad, x, which):
    one = torch.empty(x.shape[1], dtype=torch.float32, device=x.device)
    return torch.empty_like(x, memory_format=torch.channels_last), one


def _plain_keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output[1])
    ctx.kind = inputs[1].dtype


def _plain_differentiate(ctx, grad, _):
    x, which = ctx.saved_tensors
    dx, d_shift = _plain_backward(grad, x, which)
    return dx, d_shift.to(ctx.kind)


_plain.register_autograd(_plain_differentiate, setup_context=_plain_keep)


def relu_pool(x: Tensor, shift: Tensor) -> Tensor:
    """relu(x + shift), pooled, for a convolution without norm; C is a power of two."""
    y: Tensor = _plain(x, shift)[0]
    return y
