"""Batch norm with what follows it in a residual network: a sum and a ReLU, or none of them, on channels-last images.

    y = relu(weight * xhat + bias + residual);  xhat = (x - mean) * rstd
    dx = weight * rstd * (g - k * sum(g) - xhat * k * sum(g * xhat))

k is 1 / number of values, or 0 if statistics are given; g is the gradient where y is above zero, which is also the
gradient of the residual. The forward pass reads x twice (statistics, then everything else), and so does the backward
pass (sums, then dx). Without a residual it computes again what the ReLU saw; with one it reads y. Masked images are
normalised, but ignored in the statistics. Sums are taken in a fixed order, so results repeat to the bit.

Tiles are 64 channels wide, so that few kernels have to be compiled, whatever the number of channels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.models.kernels.pooling import gradients, moments, statistics

_WIDE, _WARPS = 64, 4
_ROWS, _SUMMED_ROWS = 32, 64
_PROGRAMS = 528  # four for each multiprocessor of an H100 or H200


@triton.jit
def _scale_and_offset(use, weight, bias, column, C):
    """The norm of a value is value * scale + offset."""
    scale = tl.load(weight + column).to(tl.float32) * tl.load(use + C + column)
    return scale, tl.load(bias + column).to(tl.float32) - tl.load(use + column) * scale


@triton.jit(do_not_specialize=["values"])
def _apply(
    x, residual, use, weight, bias, y, values, C,
    WIDE: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = (row < values)[:, None]
    at = row[:, None] * C + column[None, :]
    scale, offset = _scale_and_offset(use, weight, bias, column, C)
    out = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + offset[None, :]
    if RESIDUAL:
        out += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        out = tl.where(out < 0.0, 0.0, out)  # what is not a number stays so
    tl.store(y + at, out, mask=inside)


@triton.jit(do_not_specialize=["values", "tiles", "grid"])
def _gradient_sums(
    grad, x, y, use, weight, bias, gated, part, values, tiles, grid, C,
    WIDE: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """sum(g) and sum(g * xhat) of this program's rows and columns; g itself too if it is wanted."""
    program = tl.program_id(0)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    mean = tl.load(use + column)
    scale, offset = _scale_and_offset(use, weight, bias, column, C)
    sums = tl.zeros([ROWS, WIDE], tl.float32)
    products = tl.zeros([ROWS, WIDE], tl.float32)
    for tile in range(tiles):
        row = (tile * grid + program) * ROWS + tl.arange(0, ROWS)
        inside = (row < values)[:, None]
        at = row[:, None] * C + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        if GATED:
            g = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) <= 0.0, 0.0, g)
            tl.store(gated + at, g, mask=inside)
        elif RELU:
            g = tl.where(value * scale[None, :] + offset[None, :] <= 0.0, 0.0, g)
        sums += g
        products += g * (value - mean[None, :])
    tl.store(part + program * 2 * C + column, tl.sum(sums, 0))
    tl.store(part + (program * 2 + 1) * C + column, tl.sum(products, 0) * tl.load(use + C + column))


@triton.jit(do_not_specialize=["values", "per_image"])
def _gradient(
    grad, x, mask, use, weight, bias, d_weight, d_bias, dx, values, per_image, C,
    WIDE: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = row < values
    kept = tl.load(mask + row // per_image, mask=inside, other=0) != 0
    at = row[:, None] * C + column[None, :]
    scale, offset = _scale_and_offset(use, weight, bias, column, C)
    k = tl.load(use + 2 * C + column)
    slope = k * tl.load(d_weight + column) * tl.load(use + C + column)
    common = k * tl.load(d_bias + column) - tl.load(use + column) * slope
    value = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=inside[:, None], other=0.0).to(tl.float32)
    if RELU:
        g = tl.where(value * scale[None, :] + offset[None, :] <= 0.0, 0.0, g)
    d = scale[None, :] * (g - tl.where(kept[:, None], common[None, :] + value * slope[None, :], 0.0))
    tl.store(dx + at, d, mask=inside[:, None])


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Values per channel, values per channel of one image, and the width of a tile."""
    n, channels, height, width = x.shape
    return n * height * width, height * width, min(_WIDE, channels)


def _split(values: int, across: int) -> tuple[int, int]:
    """How many programs share the rows of each of `across` columns of tiles, and how many tiles each takes."""
    tiles = triton.cdiv(values, _SUMMED_ROWS)
    programs = min(max(1, _PROGRAMS // across), tiles)
    return programs, triton.cdiv(tiles, programs)


@torch.library.custom_op("fedskew::norm_relu", mutates_args=())
def _op(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    images: Tensor, relu: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    x = x.contiguous(memory_format=torch.channels_last)
    added = x if residual is None else residual.contiguous(memory_format=torch.channels_last)
    y, new_mean, new_var, use = _outputs(x, mean, var)
    channels, (values, per_image, wide) = x.shape[1], _sizes(x)
    programs, tiles = _split(values, channels // wide)
    part = torch.empty(programs, 3, channels, dtype=torch.float32, device=x.device)
    moments[(programs, channels // wide)](
        x, mask, part, values, per_image, tiles, programs,
        C=channels, WIDE=wide, ROWS=_SUMMED_ROWS, num_warps=_WARPS,
    )  # fmt: skip
    few = min(8, channels)
    statistics[(channels // few, 1)](
        part, images, mean, mean, var, new_mean, new_var, use, momentum, eps, programs,
        C=channels, WIDE=few, CHUNK=256, SHIFT=False, num_warps=_WARPS,
    )  # fmt: skip
    _apply[(triton.cdiv(values, _ROWS), channels // wide)](
        x, added, use, weight, bias, y, values,
        C=channels, WIDE=wide, ROWS=_ROWS, RELU=relu, RESIDUAL=residual is not None, num_warps=_WARPS,
    )  # fmt: skip
    return y, new_mean, new_var, use


def _outputs(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.channels_last)
    use = torch.empty(3, x.shape[1], dtype=torch.float32, device=x.device)
    return y, torch.empty_like(mean), torch.empty_like(var), use


@_op.register_fake
def _(x, residual, weight, bias, mean, var, mask, images, relu, momentum, eps):
    return _outputs(x, mean, var)


@torch.library.custom_op("fedskew::norm_relu_backward", mutates_args=())
def _op_backward(
    grad: Tensor, x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, mask: Tensor, use: Tensor, relu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx, g, and the gradients of weight and bias; g is empty unless y is given."""
    x = x.contiguous(memory_format=torch.channels_last)
    grad = grad.contiguous(memory_format=torch.channels_last)
    dx, g, d_weight, d_bias = _gradients(x, y)
    channels, (values, per_image, wide) = x.shape[1], _sizes(x)
    programs, tiles = _split(values, channels // wide)
    part = torch.empty(programs, 2, channels, dtype=torch.float32, device=x.device)
    _gradient_sums[(programs, channels // wide)](
        grad, x, x if y is None else y, use, weight, bias, g, part, values, tiles, programs,
        C=channels, WIDE=wide, ROWS=_SUMMED_ROWS, RELU=relu, GATED=y is not None, num_warps=_WARPS,
    )  # fmt: skip
    few = min(8, channels)
    gradients[(channels // few, 1)](
        part, use, weight, d_weight, d_bias, torch.empty_like(d_bias), programs,
        C=channels, WIDE=few, CHUNK=256, NORM=True, num_warps=_WARPS,
    )  # fmt: skip
    _gradient[(triton.cdiv(values, _ROWS), channels // wide)](
        grad if y is None else g, x, mask, use, weight, bias, d_weight, d_bias, dx, values, per_image,
        C=channels, WIDE=wide, ROWS=_ROWS, RELU=relu and y is None, num_warps=_WARPS,
    )  # fmt: skip
    return dx, g, d_weight, d_bias


def _gradients(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.channels_last)
    g = x.new_empty(0) if y is None else torch.empty_like(dx)
    d_weight, d_bias = (torch.empty(x.shape[1], dtype=torch.float32, device=x.device) for _ in range(2))
    return dx, g, d_weight, d_bias


@_op_backward.register_fake
def _(grad, x, y, weight, bias, mask, use, relu):
    return _gradients(x, y)


def _keep(ctx, inputs, output):
    x, residual, weight, bias, _, _, mask, _, ctx.relu, _, _ = inputs
    ctx.summed = residual is not None
    y = output[0] if ctx.summed and ctx.relu else None
    ctx.save_for_backward(x, y, weight, bias, mask, output[3])


def _differentiate(ctx, grad, *_):
    x, y, weight, bias, mask, use = ctx.saved_tensors
    dx, g, d_weight, d_bias = _op_backward(grad, x, y, weight, bias, mask, use, ctx.relu)
    d_residual = (g if ctx.relu else grad) if ctx.summed else None
    return dx, d_residual, d_weight.to(weight), d_bias.to(bias), None, None, None, None, None, None, None


_op.register_autograd(_differentiate, setup_context=_keep)


def norm_relu(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    images: Tensor, relu: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Images like x and the running statistics after this batch; the residual, if there is one, is of x's type.

    C is a power of two. The mask is 1 or 0 for each image, as bytes; `images` is how many it keeps.
    """
    y, new_mean, new_var, _ = _op(x, residual, weight, bias, mean, var, mask, images, relu, momentum, eps)
    return y, new_mean, new_var
