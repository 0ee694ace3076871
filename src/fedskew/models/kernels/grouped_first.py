"""The first layer of many clients: convolution, norm, ReLU and 2x2 max-pooling in one kernel.

The convolution's result, by far the largest activation of a network, never reaches memory. A window of the images, with
a 1 behind its last value, is a row v of V. For filters w the sum and the sum of squares of the convolution's values are
entries of w V'V and w V'V w', so a small matrix V'V per client holds the statistics of batch norm. Its gradient needs
no more than that: with g the gradient at each pooled value and xhat = (w v - mean) * rstd,

    dw = weight * rstd * (sum g v - k sum(g) sum v - k sum(g xhat) sum xhat v)

The first sum is over pooled values only, the others over all pixels come from V'V. Images that the mask leaves out are
not in V'V, and their g is zero.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.models.kernels.grouped_conv import Sizes, added
from fedskew.models.kernels.launch import launch
from fedskew.models.kernels.pooling import settle

_SPLITS, _BLOCK = 26, 32


@triton.jit
def _windows(
    x, image, r, c, inside, k,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr,
    ONE: tl.constexpr,
):  # fmt: skip
    """Windows whose corner is (r, c), in the order row, column, channel; ONE: a constant 1 after the last value."""
    ALL: tl.constexpr = KH * KW * CI
    down, right = k // (KW * CI), k // CI % KW
    at = ((image * H + r) * W + c)[:, None] * CI + (down * (W * CI) + k % (KW * CI))[None, :]
    real = inside[:, None] & (k < ALL)[None, :]
    if PAD > 0:
        y, z = r[:, None] + down[None, :], c[:, None] + right[None, :]
        real = real & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    value = tl.load(x + at, mask=real, other=0.0)
    if ONE:
        one = tl.full(value.shape, 1.0, tl.float32).to(value.dtype)
        value = tl.where(inside[:, None] & (k == ALL)[None, :], one, value)
    return value


@triton.jit(do_not_specialize=["splits", "steps"])
def _products(
    x, mask, part, images, splits, steps,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, KP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """part [K, splits, KP, KP]: V'V of this program's unmasked windows."""
    split = tl.program_id(0)
    client = tl.program_id(1).to(tl.int64)
    rows = images * (OH * OW)
    k = tl.arange(0, KP)
    x += client * images * (H * W * CI)
    acc = tl.zeros([KP, KP], tl.float32)
    last = tl.minimum(split * steps + steps, (rows + BK - 1) // BK)
    for step in range(split * steps, last):
        row = step * BK + tl.arange(0, BK)
        image, within = row // (OH * OW), row % (OH * OW)
        kept = (row < rows) & (tl.load(mask + client * images + image, mask=row < rows, other=0) != 0)
        a = _windows(x, image, within // OW - PAD, within % OW - PAD, kept, k, H, W, CI, KH, KW, PAD, True)
        acc = tl.dot(tl.trans(a), a, acc, input_precision="ieee")
    tl.store(part + ((client * splits + split) * KP + k[:, None]) * KP + k[None, :], acc)


@triton.jit
def _statistics(
    w, products, images, shift, old_mean, old_var, new_mean, new_var, use, sums, momentum, eps,
    ALL: tl.constexpr, CO: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Batch norm's statistics from V'V; `sums` [K, Co, KP] is w V'V."""
    client = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, KP)
    at = (client * CO + column)[:, None] * KP + k[None, :]
    filters = tl.load(w + at).to(tl.float32)
    products += client * (KP * KP)
    made = tl.dot(filters, tl.load(products + k[:, None] * KP + k[None, :]), input_precision="ieee")
    tl.store(sums + at, made)
    count = tl.load(products + ALL * KP + ALL)
    n = tl.maximum(count, 1.0)
    mean = tl.sum(tl.where((k == ALL)[None, :], made, 0.0), 1) / n
    squares = tl.maximum(tl.sum(made * filters, 1) - mean * mean * n, 0.0)
    several = tl.load(images + client) > 1
    moved = tl.load(shift + client * CO + column).to(tl.float32)
    settle(
        count, mean, squares, several, moved, old_mean, old_var, new_mean, new_var, use, momentum, eps, client, column,
        CO,
    )  # fmt: skip


@triton.jit
def _forward(
    x, w, use, weight, bias, y, which, images,
    H: tl.constexpr, W: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Pooled values of one tile, and which of the four pixels each came from (4: ReLU made it zero)."""
    client = tl.program_id(1).to(tl.int64)
    rows = images * (PH * PW)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = row < rows
    image, within = row // (PH * PW), row % (PH * PW)
    r, c = within // PW * 2 - PAD, within % PW * 2 - PAD
    k, column = tl.arange(0, KP), tl.arange(0, CO)
    x += client * images * (H * W * CI)
    b = tl.load(w + client * (CO * KP) + column[:, None] * KP + k[None, :])
    times = tl.full([CO], 1.0, tl.float32)
    plus = tl.load(bias + client * CO + column).to(tl.float32)
    if NORM:
        times = tl.load(weight + client * CO + column).to(tl.float32) * tl.load(use + client * (3 * CO) + CO + column)
        plus -= tl.load(use + client * (3 * CO) + column) * times
    best = tl.zeros([BM, CO], tl.float32)
    index = tl.full([BM, CO], 4, tl.int32)
    for q in range(4):
        a = _windows(x, image, r + q // 2, c + q % 2, inside, k, H, W, CI, KH, KW, PAD, False)
        value = tl.dot(a, tl.trans(b), input_precision="ieee") * times[None, :] + plus[None, :]
        better = value > best
        best = tl.where(better, value, best)
        index = tl.where(better, q, index)
    into = client * rows * CO + row[:, None] * CO + column[None, :]
    tl.store(y + into, best.to(y.dtype.element_ty), mask=inside[:, None])
    tl.store(which + into, index.to(tl.uint8), mask=inside[:, None])


@triton.jit(do_not_specialize=["splits", "steps"])
def _sparse_sums(
    x, grad, which, part, images, splits, steps,
    H: tl.constexpr, W: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, KP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """part [K, splits, Co, KP]: sums of g times the window that each pooled value came from."""
    split = tl.program_id(0)
    client = tl.program_id(1).to(tl.int64)
    rows = images * (PH * PW)
    k, out = tl.arange(0, KP), tl.arange(0, CO)
    x += client * images * (H * W * CI)
    grad += client * rows * CO
    which += client * rows * CO
    acc = tl.zeros([CO, KP], tl.float32)
    last = tl.minimum(split * steps + steps, (rows + BK - 1) // BK)
    for step in range(split * steps, last):
        row = step * BK + tl.arange(0, BK)
        inside = row < rows
        image, within = row // (PH * PW), row % (PH * PW)
        r, c = within // PW * 2 - PAD, within % PW * 2 - PAD
        at = row[:, None] * CO + out[None, :]
        g = tl.load(grad + at, mask=inside[:, None], other=0.0)
        index = tl.load(which + at, mask=inside[:, None], other=4)
        for q in tl.static_range(4):
            b = _windows(x, image, r + q // 2, c + q % 2, inside, k, H, W, CI, KH, KW, PAD, True)
            a = tl.where(index == q, g, tl.zeros(g.shape, tl.float32).to(g.dtype))
            acc = tl.dot(tl.trans(a), b, acc, input_precision="ieee")
    tl.store(part + ((client * splits + split) * CO + out[:, None]) * KP + k[None, :], acc)


@triton.jit
def _gradients(
    w, sparse, products, sums, use, weight, dw, d_weight, d_bias, d_shift,
    ALL: tl.constexpr, CO: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """dw [K, Co, ALL] and the gradients of norm; without norm d_bias is that of the convolution's bias."""
    client = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = client * CO + column
    k = tl.arange(0, KP)
    at = own[:, None] * KP + k[None, :]
    known = (k < ALL)[None, :]
    g_v = tl.load(sparse + at)
    g_sum = tl.sum(tl.where((k == ALL)[None, :], g_v, 0.0), 1)
    tl.store(d_bias + own, g_sum)
    d = g_v
    if NORM:
        use += client * (3 * CO)
        mean = tl.load(use + column)
        rstd = tl.load(use + CO + column)
        share = tl.load(use + 2 * CO + column)
        scale = tl.load(weight + own).to(tl.float32) * rstd
        g_conv = tl.sum(tl.where(known, g_v * tl.load(w + at).to(tl.float32), 0.0), 1)
        g_xhat = (g_conv - mean * g_sum) * rstd
        slope = share * g_xhat * rstd
        common = share * g_sum - mean * slope
        v_sum = tl.load(products + client * (KP * KP) + ALL * KP + k)
        d = scale[:, None] * (g_v - common[:, None] * v_sum[None, :] - slope[:, None] * tl.load(sums + at))
        tl.store(d_weight + own, g_xhat)
        tl.store(d_shift + own, tl.where(share > 0.0, 0.0, scale * g_sum))
    tl.store(dw + own[:, None] * ALL + k[None, :], d, mask=known)


def width(here: Sizes) -> int:
    """Columns of V: a window and a 1, filled up to a power of two."""
    return max(16, 1 << (here.KH * here.KW * here.CI).bit_length())


def packed(w: Tensor, here: Sizes, kind: torch.dtype) -> Tensor:
    """Filters [K, Co, kh, kw, Ci] as rows [K, Co, KP]; zeros behind the window."""
    rows = torch.zeros(*w.shape[:2], width(here), dtype=kind, device=w.device)
    rows[..., : here.KH * here.KW * here.CI].unflatten(-1, w.shape[2:]).copy_(w)
    return rows


def products(x: Tensor, mask: Tensor, here: Sizes) -> Tensor:
    """V'V [K, KP, KP] in float32."""
    (clients, images), kp = x.shape[:2], width(here)
    bk = 128 if kp <= 64 else 64
    part = torch.empty(clients, _SPLITS, kp * kp, dtype=torch.float32, device=x.device)
    steps = triton.cdiv(triton.cdiv(images * here.OH * here.OW, bk), _SPLITS)
    launch(
        _products, (_SPLITS, clients),
        x, mask, part, images, _SPLITS, steps, H=here.H, W=here.W, OH=here.OH, OW=here.OW, CI=here.CI, KH=here.KH,
        KW=here.KW, PAD=here.PAD, KP=kp, BK=bk, num_warps=4, num_stages=2,
    )  # fmt: skip
    return added(part).view(clients, kp, kp)


def statistics(
    rows: Tensor, made: Tensor, images: Tensor, shift: Tensor, mean: Tensor, var: Tensor, here: Sizes, momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Running mean and variance, what to normalise with [K, 3, Co], and w V'V [K, Co, KP]."""
    new_mean, new_var = torch.empty_like(mean), torch.empty_like(var)
    clients, block = len(rows), min(_BLOCK, here.CO)
    use = torch.empty(clients, 3, here.CO, dtype=torch.float32, device=rows.device)
    sums = torch.empty_like(rows, dtype=torch.float32)
    launch(
        _statistics, (here.CO // block, clients),
        rows, made, images, shift, mean, var, new_mean, new_var, use, sums, momentum, eps,
        ALL=here.KH * here.KW * here.CI, CO=here.CO, KP=rows.shape[-1], BLOCK=block, num_warps=4,
    )  # fmt: skip
    return new_mean, new_var, use, sums


def forward(
    x: Tensor, rows: Tensor, use: Tensor, weight: Tensor, bias: Tensor, here: Sizes, *, norm: bool
) -> tuple[Tensor, Tensor]:
    clients, images = x.shape[:2]
    ph, pw = here.OH // 2, here.OW // 2
    bm, warps = (32, 4) if here.CO >= 128 else (64, 8)
    y = x.new_empty(clients, images, ph, pw, here.CO)
    which = torch.empty_like(y, dtype=torch.uint8)
    launch(
        _forward, (triton.cdiv(images * ph * pw, bm), clients),
        x, rows, use, weight, bias, y, which, images, H=here.H, W=here.W, PH=ph, PW=pw, CI=here.CI, CO=here.CO,
        KH=here.KH, KW=here.KW, PAD=here.PAD, KP=rows.shape[-1], BM=bm, NORM=norm, num_warps=warps,
    )  # fmt: skip
    return y, which


def gradients(
    grad: Tensor, x: Tensor, which: Tensor, rows: Tensor, made: Tensor, sums: Tensor, use: Tensor, weight: Tensor,
    here: Sizes, *, norm: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """dw [K, Co, kh, kw, Ci], d_weight, d_bias and d_shift [K, Co], all in float32."""
    (clients, images), kp = x.shape[:2], rows.shape[-1]
    ph, pw, every = here.OH // 2, here.OW // 2, here.KH * here.KW * here.CI
    bk, warps, splits = (64, 8, 26) if kp <= 64 else (32, 4, 39)
    part = torch.empty(clients, splits, here.CO * kp, dtype=torch.float32, device=x.device)
    launch(
        _sparse_sums, (splits, clients),
        x, grad, which, part, images, splits, triton.cdiv(triton.cdiv(images * ph * pw, bk), splits),
        H=here.H, W=here.W, PH=ph, PW=pw, CI=here.CI, CO=here.CO, KH=here.KH, KW=here.KW, PAD=here.PAD, KP=kp, BK=bk,
        num_warps=warps, num_stages=2,
    )  # fmt: skip
    dw = torch.empty(clients, here.CO, here.KH, here.KW, here.CI, dtype=torch.float32, device=x.device)
    d_weight, d_bias, d_shift = torch.empty(3, clients, here.CO, dtype=torch.float32, device=x.device)
    block = min(_BLOCK, here.CO)
    launch(
        _gradients, (here.CO // block, clients),
        rows, added(part), made, sums, use, weight, dw, d_weight, d_bias, d_shift,
        ALL=every, CO=here.CO, KP=kp, BLOCK=block, NORM=norm, num_warps=4,
    )  # fmt: skip
    return dw, d_weight, d_bias, d_shift
