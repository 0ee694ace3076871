"""Batch norm, ReLU and 2x2 max-pooling in one pass forward and one backward, on channels-last images.

PyTorch reads and writes the largest activation of a convolutional network about ten times in these three layers. Here
the forward pass reads it twice (statistics, then everything else), and the backward pass once: gradients are sparse
after pooling, so the sums that batch norm needs come from the pooled images alone.

    y = relu(weight * xhat + bias), pooled;  xhat = (x + shift - mean) * rstd
    dx = weight * rstd * (g - k * sum(g) - xhat * k * sum(g * xhat))

k is 1 / number of values, or 0 where statistics are given; g is the gradient at the largest of each window where that
is above zero. `shift` is the bias of the convolution before: it cancels in the batch statistics, so it is only carried
to the running mean. Masked images take no part. Sums are taken in a fixed order, so results repeat to the bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _WARPS = 32, 4
_PROGRAMS = 264  # two for each multiprocessor of an H100 or H200


@triton.jit
def _moments(
    x, mask, part, values, per_image, C: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr, GRID: tl.constexpr
):  # fmt: skip
    """Count, mean and sum of squared deviations of this program's rows of [values, C]."""
    program = tl.program_id(0)
    column = tl.arange(0, C)
    near = tl.load(x + tl.minimum(program * ROWS, values - 1) * C + column).to(tl.float32)
    seen = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros(
        [ROWS, C], tl.float32
    )  # reduced once at the end: a reduction per tile would cost more than it reads
    squares = tl.zeros([ROWS, C], tl.float32)
    for tile in range(TILES):
        row = (tile * GRID + program) * ROWS + tl.arange(0, ROWS)
        inside = row < values
        kept = inside & (tl.load(mask + row // per_image, mask=inside, other=0) != 0)
        value = tl.load(x + row[:, None] * C + column[None, :], mask=kept[:, None], other=0.0).to(tl.float32)
        off = tl.where(kept[:, None], value - near[None, :], 0.0)
        seen += kept.to(tl.float32)
        sums += off
        squares += off * off
    count, first, second = tl.sum(seen, 0), tl.sum(sums, 0), tl.sum(squares, 0)
    n = tl.maximum(count, 1.0)
    tl.store(part + (program * 3 + 0) * C + column, tl.zeros([C], tl.float32) + count)
    tl.store(part + (program * 3 + 1) * C + column, near + first / n)
    tl.store(part + (program * 3 + 2) * C + column, second - first * first / n)


@triton.jit
def _statistics(
    part, images, shift, old_mean, old_var, new_mean, new_var, use, momentum, eps,
    GRID: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The programs' moments merged; what to normalise with, and the running statistics."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    near = tl.load(part + C + column)
    count = tl.zeros([WIDE], tl.float32)
    first = tl.zeros([WIDE], tl.float32)
    second = tl.zeros([WIDE], tl.float32)
    for start in range(0, GRID, CHUNK):
        program = start + tl.arange(0, CHUNK)
        inside = (program < GRID)[:, None]
        at = part + program[:, None] * 3 * C + column[None, :]
        n = tl.load(at, mask=inside, other=0.0)
        off = tl.load(at + C, mask=inside, other=0.0) - near[None, :]
        count += tl.sum(n, 0)
        first += tl.sum(n * off, 0)
        second += tl.sum(tl.load(at + 2 * C, mask=inside, other=0.0) + n * off * off, 0)
    n = tl.maximum(count, 1.0)
    mean = near + first / n
    squares = tl.maximum(second - first * first / n, 0.0)
    several = tl.load(images) > 1
    moved = tl.load(shift + column).to(tl.float32)
    before_mean = tl.load(old_mean + column).to(tl.float32)
    before_var = tl.load(old_var + column).to(tl.float32)
    step = tl.where(several, momentum, 0.0)
    tl.store(new_mean + column, before_mean + step * (mean + moved - before_mean))
    tl.store(new_var + column, before_var + step * (squares / tl.maximum(count - 1.0, 1.0) - before_var))
    tl.store(use + column, tl.where(several, mean, before_mean - moved))
    tl.store(use + C + column, 1.0 / tl.sqrt_rn(tl.where(several, squares / n, before_var) + eps))
    tl.store(use + 2 * C + column, tl.where(several, 1.0 / n, 0.0))


@triton.jit
def _forward(
    x, use, weight, bias, y, top, which, windows, H, W, PH, PW, C: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr
):
    """Each window's largest value after norm and ReLU, the raw value it came from, and which of the four it was."""
    window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = (window < windows)[:, None]
    image, within = window // (PH * PW), window % (PH * PW)
    corner = (image * H + within // PW * 2) * W + within % PW * 2
    scale = tl.full([C], 1.0, tl.float32)
    offset = tl.load(bias + column).to(tl.float32)
    if NORM:
        scale = tl.load(weight + column).to(tl.float32) * tl.load(use + C + column)
        offset -= tl.load(use + column) * scale
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
    if NORM:
        tl.store(top + out, raw, mask=inside)
    tl.store(which + out, tl.where(best > 0.0, index, 4).to(tl.uint8), mask=inside)


@triton.jit
def _sums(
    grad, top, which, use, part, windows,
    C: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr, GRID: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """sum(g) and sum(g * xhat) of this program's windows."""
    program = tl.program_id(0)
    column = tl.arange(0, C)
    sums = tl.zeros([ROWS, C], tl.float32)
    products = tl.zeros([ROWS, C], tl.float32)
    for tile in range(TILES):
        window = (tile * GRID + program) * ROWS + tl.arange(0, ROWS)
        inside = (window < windows)[:, None]
        at = window[:, None] * C + column[None, :]
        on = tl.load(which + at, mask=inside, other=4) < 4
        g = tl.where(on, tl.load(grad + at, mask=inside, other=0.0).to(tl.float32), 0.0)
        sums += g
        if NORM:
            value = tl.load(top + at, mask=inside, other=0.0).to(tl.float32)
            products += g * (value - tl.load(use + column)[None, :])
    tl.store(part + program * 2 * C + column, tl.sum(sums, 0))
    if NORM:
        tl.store(part + (program * 2 + 1) * C + column, tl.sum(products, 0) * tl.load(use + C + column))


@triton.jit
def _gradients(
    part, use, weight, d_weight, d_bias, d_shift,
    GRID: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, CHUNK: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    first = tl.zeros([WIDE], tl.float32)
    second = tl.zeros([WIDE], tl.float32)
    for start in range(0, GRID, CHUNK):
        program = start + tl.arange(0, CHUNK)
        inside = (program < GRID)[:, None]
        at = part + program[:, None] * 2 * C + column[None, :]
        first += tl.sum(tl.load(at, mask=inside, other=0.0), 0)
        if NORM:
            second += tl.sum(tl.load(at + C, mask=inside, other=0.0), 0)
    tl.store(d_bias + column, first)
    if NORM:
        k = tl.load(use + 2 * C + column)
        scale = tl.load(weight + column).to(tl.float32) * tl.load(use + C + column)
        tl.store(d_weight + column, second)
        tl.store(d_shift + column, tl.where(k > 0.0, 0.0, scale * first))


@triton.jit
def _backward(
    x, grad, which, mask, use, weight, d_weight, d_bias, dx, corners, H, W, PH, PW, CH, CW,
    C: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """dx at the four pixels of each corner; pixels that pooling dropped still moved the statistics."""
    corner = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = corner < corners
    image, within = corner // (CH * CW), corner % (CH * CW)
    r, c = within // CW, within % CW
    pooled = (inside & (r < PH) & (c < PW))[:, None]
    at = ((image * PH + r) * PW + c)[:, None] * C + column[None, :]
    index = tl.load(which + at, mask=pooled, other=4).to(tl.int32)
    g = tl.load(grad + at, mask=pooled, other=0.0).to(tl.float32)
    if NORM:
        kept = (tl.load(mask + image, mask=inside, other=0) != 0)[:, None]
        k = tl.load(use + 2 * C + column)
        rstd = tl.load(use + C + column)
        scale = tl.load(weight + column).to(tl.float32) * rstd
        slope = k * tl.load(d_weight + column) * rstd
        common = k * tl.load(d_bias + column) - tl.load(use + column) * slope
    for q in tl.static_range(4):
        row, place = 2 * r + q // 2, 2 * c + q % 2
        real = (inside & (row < H) & (place < W))[:, None]
        here = ((image * H + row) * W + place)[:, None] * C + column[None, :]
        d = tl.where(index == q, g, 0.0)
        if NORM:
            value = tl.load(x + here, mask=real, other=0.0).to(tl.float32)
            d = scale[None, :] * (d - tl.where(kept, common[None, :] + value * slope[None, :], 0.0))
        tl.store(dx + here, d, mask=real)


def _split(rows: int) -> tuple[int, int]:
    """How many programs share so many rows, and how many tiles each takes."""
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
    _moments[(programs,)](
        x, mask, part, n * height * width, height * width,
        C=channels, ROWS=_ROWS, TILES=tiles, GRID=programs, num_warps=_WARPS,
    )  # fmt: skip
    wide = min(8, channels)
    _statistics[(channels // wide,)](
        part, images, shift, mean, var, new_mean, new_var, use, momentum, eps,
        GRID=programs, C=channels, WIDE=wide, CHUNK=256, num_warps=_WARPS,
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
    _forward[(triton.cdiv(n * ph * pw, _ROWS),)](
        x, use, weight, bias, y, top, which, n * ph * pw, height, width, ph, pw,
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
    _sums[(programs,)](
        grad, top, which, use, part, n * ph * pw,
        C=channels, ROWS=_ROWS, TILES=tiles, GRID=programs, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    wide = min(8, channels)
    _gradients[(channels // wide,)](
        part, use, weight, d_weight, d_bias, d_shift,
        GRID=programs, C=channels, WIDE=wide, CHUNK=256, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    _backward[(triton.cdiv(n * ch * cw, _ROWS),)](
        x, grad, which, mask, use, weight, d_weight, d_bias, dx, n * ch * cw, height, width, ph, pw, ch, cw,
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
