"""Batch norm, ReLU and 2x2 max-pooling in one pass forward and one backward, on channels-last images.

PyTorch reads and writes the largest activation of a convolutional network about ten times in these three layers. Here
the forward pass reads it twice (statistics, then everything else), and the backward pass once: gradients are sparse
after pooling, so the sums that batch norm needs come from the pooled images alone.

    y = relu(weight * xhat + bias), pooled;  xhat = (x + shift - mean) * rstd
    dx = weight * rstd * (g - k * sum(g) - xhat * k * sum(g * xhat))

k is 1 / number of values, or 0 where statistics are given; g is the gradient at the largest of each window where that
is above zero. `shift` is the bias of the convolution before: it cancels in the batch statistics, so it is only carried
to the running mean. Masked images take no part.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64


@triton.jit
def _moments(x, mask, part, values, per_image, C: tl.constexpr, ROWS: tl.constexpr):
    """Count, mean and sum of squared deviations of a block of rows [values, C]."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = row < values
    kept = inside & (tl.load(mask + row // per_image, mask=inside, other=0) != 0)
    tile = tl.load(x + row[:, None] * C + column[None, :], mask=kept[:, None], other=0.0).to(tl.float32)
    count = tl.sum(kept.to(tl.float32), 0)
    mean = tl.sum(tile, 0) / tl.maximum(count, 1.0)
    off = tl.where(kept[:, None], tile - mean[None, :], 0.0)
    tl.store(part + (block * 3 + 0) * C + column, tl.zeros_like(mean) + count)
    tl.store(part + (block * 3 + 1) * C + column, mean)
    tl.store(part + (block * 3 + 2) * C + column, tl.sum(off * off, 0))


@triton.jit
def _statistics(
    part, images, shift, old_mean, old_var, new_mean, new_var, use, momentum, eps,
    BLOCKS: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The blocks' moments merged (Chan et al., 1979); what to normalise with, and the running statistics."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    count = tl.zeros([WIDE], tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    for start in range(0, BLOCKS, CHUNK):
        block = start + tl.arange(0, CHUNK)
        inside = (block < BLOCKS)[:, None]
        at = part + block[:, None] * 3 * C + column[None, :]
        n = tl.load(at, mask=inside, other=0.0)
        count += tl.sum(n, 0)
        total += tl.sum(n * tl.load(at + C, mask=inside, other=0.0), 0)
    mean = total / tl.maximum(count, 1.0)
    squares = tl.zeros([WIDE], tl.float32)
    for start in range(0, BLOCKS, CHUNK):
        block = start + tl.arange(0, CHUNK)
        inside = (block < BLOCKS)[:, None]
        at = part + block[:, None] * 3 * C + column[None, :]
        n = tl.load(at, mask=inside, other=0.0)
        off = tl.load(at + C, mask=inside, other=0.0) - mean[None, :]
        squares += tl.sum(tl.load(at + 2 * C, mask=inside, other=0.0) + n * off * off, 0)
    several = tl.load(images) > 1
    moved = tl.load(shift + column).to(tl.float32)
    before_mean = tl.load(old_mean + column).to(tl.float32)
    before_var = tl.load(old_var + column).to(tl.float32)
    var = squares / tl.maximum(count, 1.0)
    step = tl.where(several, momentum, 0.0)
    tl.store(new_mean + column, before_mean + step * (mean + moved - before_mean))
    tl.store(new_var + column, before_var + step * (squares / tl.maximum(count - 1.0, 1.0) - before_var))
    tl.store(use + column, tl.where(several, mean, before_mean - moved))
    tl.store(use + C + column, 1.0 / tl.sqrt_rn(tl.where(several, var, before_var) + eps))
    tl.store(use + 2 * C + column, tl.where(several, 1.0 / tl.maximum(count, 1.0), 0.0))


@triton.jit
def _forward(
    x, use, weight, bias, y, top, which, windows, H, W, PH, PW, C: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Each window's largest value after norm and ReLU, the raw value it came from, and which of the four it was."""
    window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = (window < windows)[:, None]
    image, within = window // (PH * PW), window % (PH * PW)
    corner = (image * H + within // PW * 2) * W + within % PW * 2
    mean, rstd = tl.load(use + column), tl.load(use + C + column)
    scale = tl.load(weight + column).to(tl.float32) * rstd
    offset = tl.load(bias + column).to(tl.float32) - mean * scale
    best = tl.full([ROWS, C], float("-inf"), tl.float32)
    raw = tl.zeros([ROWS, C], tl.float32)
    index = tl.zeros([ROWS, C], tl.int32)
    for q in tl.static_range(4):
        at = x + (corner + (q // 2) * W + q % 2)[:, None] * C + column[None, :]
        value = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        normed = value * scale[None, :] + offset[None, :]
        better = normed > best
        best = tl.where(better, normed, best)
        raw = tl.where(better, value, raw)
        index = tl.where(better, q, index)
    out = window[:, None] * C + column[None, :]
    tl.store(y + out, tl.maximum(best, 0.0), mask=inside)
    tl.store(top + out, raw, mask=inside)
    tl.store(which + out, tl.where(best > 0.0, index, 4).to(tl.uint8), mask=inside)


@triton.jit
def _sums(grad, top, which, use, part, windows, C: tl.constexpr, ROWS: tl.constexpr):
    """sum(g) and sum(g * xhat) of a block of windows."""
    block = tl.program_id(0)
    window = block * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = (window < windows)[:, None]
    at = window[:, None] * C + column[None, :]
    on = inside & (tl.load(which + at, mask=inside, other=4) < 4)
    g = tl.load(grad + at, mask=on, other=0.0).to(tl.float32)
    value = tl.load(top + at, mask=on, other=0.0).to(tl.float32)
    mean, rstd = tl.load(use + column), tl.load(use + C + column)
    xhat = (value - mean[None, :]) * rstd[None, :]
    tl.store(part + block * 2 * C + column, tl.sum(g, 0))
    tl.store(part + (block * 2 + 1) * C + column, tl.sum(g * xhat, 0))


@triton.jit
def _gradients(
    part, use, weight, d_weight, d_bias, d_shift,
    BLOCKS: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    first = tl.zeros([WIDE], tl.float32)
    second = tl.zeros([WIDE], tl.float32)
    for start in range(0, BLOCKS, CHUNK):
        block = start + tl.arange(0, CHUNK)
        inside = (block < BLOCKS)[:, None]
        at = part + block[:, None] * 2 * C + column[None, :]
        first += tl.sum(tl.load(at, mask=inside, other=0.0), 0)
        second += tl.sum(tl.load(at + C, mask=inside, other=0.0), 0)
    k = tl.load(use + 2 * C + column)
    scale = tl.load(weight + column).to(tl.float32) * tl.load(use + C + column)
    tl.store(d_bias + column, first)
    tl.store(d_weight + column, second)
    tl.store(d_shift + column, tl.where(k > 0.0, 0.0, scale * first))


@triton.jit
def _backward(
    x, grad, which, mask, use, weight, d_weight, d_bias, dx, pixels, per_image, H, W, PH, PW,
    C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dx at every pixel; those that pooling dropped still moved the statistics."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = pixel < pixels
    image, within = pixel // per_image, pixel % per_image
    r, c = within // W, within % W
    pooled = inside & (r // 2 < PH) & (c // 2 < PW)
    window = (image * PH + r // 2) * PW + c // 2
    at = window[:, None] * C + column[None, :]
    mine = (r % 2) * 2 + c % 2
    on = pooled[:, None] & (tl.load(which + at, mask=pooled[:, None], other=4) == mine[:, None])
    g = tl.load(grad + at, mask=on, other=0.0).to(tl.float32)
    kept = inside & (tl.load(mask + image, mask=inside, other=0) != 0)
    here = pixel[:, None] * C + column[None, :]
    value = tl.load(x + here, mask=inside[:, None], other=0.0).to(tl.float32)
    mean, rstd, k = tl.load(use + column), tl.load(use + C + column), tl.load(use + 2 * C + column)
    scale = tl.load(weight + column).to(tl.float32) * rstd
    xhat = (value - mean[None, :]) * rstd[None, :]
    common = k * tl.load(d_bias + column)
    slope = k * tl.load(d_weight + column)
    d = scale[None, :] * (g - tl.where(kept[:, None], common[None, :] + xhat * slope[None, :], 0.0))
    tl.store(dx + here, d, mask=inside[:, None])


@torch.library.custom_op("fedskew::norm_relu_pool", mutates_args=())
def _op(
    x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    x = x.contiguous(memory_format=torch.channels_last)
    n, channels, height, width = x.shape
    ph, pw = height // 2, width // 2
    values, windows = n * height * width, n * ph * pw
    y = torch.empty(n, channels, ph, pw, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    top, which = torch.empty_like(y), torch.empty_like(y, dtype=torch.uint8)
    use = torch.empty(3, channels, dtype=torch.float32, device=x.device)
    new_mean, new_var = torch.empty_like(mean), torch.empty_like(var)
    rows = 256
    blocks = triton.cdiv(values, rows)
    part = torch.empty(blocks, 3, channels, dtype=torch.float32, device=x.device)
    seen, images = mask.to(torch.uint8), mask.sum()
    _moments[(blocks,)](x, seen, part, values, height * width, C=channels, ROWS=rows, num_warps=8)
    wide = min(16, channels)
    _statistics[(channels // wide,)](
        part, images, shift, mean, var, new_mean, new_var, use, momentum, eps,
        BLOCKS=blocks, C=channels, WIDE=wide, CHUNK=128, num_warps=8,
    )  # fmt: skip
    _forward[(triton.cdiv(windows, _ROWS),)](
        x, use, weight, bias, y, top, which, windows, height, width, ph, pw, C=channels, ROWS=_ROWS, num_warps=8
    )  # fmt: skip
    return y, new_mean, new_var, top, which, use


@_op.register_fake
def _(x, shift, weight, bias, mean, var, mask, momentum, eps):
    n, channels, height, width = x.shape
    y = torch.empty(
        n, channels, height // 2, width // 2, dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )
    use = torch.empty(3, channels, dtype=torch.float32, device=x.device)
    return (
        y, torch.empty_like(mean), torch.empty_like(var), torch.empty_like(y), torch.empty_like(y, dtype=torch.uint8),
        use,
    )  # fmt: skip


@torch.library.custom_op("fedskew::norm_relu_pool_backward", mutates_args=())
def _op_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mask: Tensor, top: Tensor, which: Tensor, use: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = x.contiguous(memory_format=torch.channels_last)
    grad = grad.contiguous(memory_format=torch.channels_last)
    n, channels, height, width = x.shape
    ph, pw = height // 2, width // 2
    pixels, windows = n * height * width, n * ph * pw
    dx = torch.empty_like(x)
    d_weight, d_bias, d_shift = (torch.empty(channels, dtype=torch.float32, device=x.device) for _ in range(3))
    rows = 256
    blocks = triton.cdiv(windows, rows)
    part = torch.empty(blocks, 2, channels, dtype=torch.float32, device=x.device)
    _sums[(blocks,)](grad, top, which, use, part, windows, C=channels, ROWS=rows, num_warps=8)
    wide = min(16, channels)
    _gradients[(channels // wide,)](
        part, use, weight, d_weight, d_bias, d_shift, BLOCKS=blocks, C=channels, WIDE=wide, CHUNK=128, num_warps=8
    )  # fmt: skip
    _backward[(triton.cdiv(pixels, _ROWS),)](
        x, grad, which, mask.to(torch.uint8), use, weight, d_weight, d_bias, dx, pixels, height * width, height, width,
        ph, pw, C=channels, ROWS=_ROWS, num_warps=8,
    )  # fmt: skip
    return dx, d_weight, d_bias, d_shift


@_op_backward.register_fake
def _(grad, x, weight, mask, top, which, use):
    one = torch.empty(x.shape[1], dtype=torch.float32, device=x.device)
    return torch.empty_like(x, memory_format=torch.channels_last), one, torch.empty_like(one), torch.empty_like(one)


def _keep(ctx, inputs, output):
    x, _, weight, _, _, _, mask, _, _ = inputs
    _, _, _, top, which, use = output
    ctx.save_for_backward(x, weight, mask, top, which, use)


def _differentiate(ctx, grad, *_):
    x, weight, mask, top, which, use = ctx.saved_tensors
    dx, d_weight, d_bias, d_shift = _op_backward(grad, x, weight, mask, top, which, use)
    kind = weight.dtype
    return dx, d_shift.to(kind), d_weight.to(kind), d_bias.to(kind), None, None, None, None, None


_op.register_autograd(_differentiate, setup_context=_keep)


def norm_relu_pool(
    x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Pooled images [n, C, H/2, W/2] and the running statistics after this batch; C is a power of two."""
    y, new_mean, new_var, *_ = _op(x, shift, weight, bias, mean, var, mask, momentum, eps)
    return y, new_mean, new_var
