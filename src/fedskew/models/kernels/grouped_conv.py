"""Convolutions of many clients in one launch, with a client axis in the grid.

Images x [K, B, H, W, Ci], filters w [K, Co, kh, kw, Ci], results y [K, B, OH, OW, Co]: channels last, contiguous,
stride 1. Products are in the type of the inputs, sums in float32. Every sum has one fixed order, which does not depend
on the number of clients: results repeat to the bit, and a client's do not depend on who else is there. Block sizes are
those that were fastest on an H200 for 20 clients with batches of 128.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.models.kernels.launch import launch


@triton.jit
def _forward(
    x, w, mask, y, part, images,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """One tile of y; with MOMENTS also the count, mean and squared deviations of its unmasked rows, as stored."""
    NB: tl.constexpr = CO // BN
    KB: tl.constexpr = CI // BK
    ALL: tl.constexpr = KH * KW * CI
    tile, block = tl.program_id(0) // NB, tl.program_id(0) % NB
    client = tl.program_id(1).to(tl.int64)
    rows = images * (OH * OW)
    row = tile * BM + tl.arange(0, BM)
    inside = row < rows
    safe = row
    if not EVEN:
        safe = tl.where(inside, row, 0)
    image, within = safe // (OH * OW), safe % (OH * OW)
    r, c = within // OW - PAD, within % OW - PAD
    column = block * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    from_x = x + client * images * (H * W * CI) + (((image * H + r) * W + c) * CI)[:, None] + k[None, :]
    from_w = w + client * (CO * ALL) + column[:, None] * ALL + k[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(KH * KW * KB):
        tap, part_of_k = step // KB, step % KB
        down, right = tap // KW, tap % KW
        at = from_x + ((down * W + right) * CI + part_of_k * BK)
        if PAD > 0:
            real = (r + down >= 0) & (r + down < H) & (c + right >= 0) & (c + right < W)
            a = tl.load(at, mask=real[:, None], other=0.0)
        else:
            a = tl.load(at)
        acc = tl.dot(a, tl.trans(tl.load(from_w + step * BK)), acc, input_precision="ieee")
    out = acc.to(y.dtype.element_ty)
    into_y = y + client * rows * CO + row[:, None] * CO + column[None, :]
    if EVEN:
        tl.store(into_y, out)
    else:
        tl.store(into_y, out, mask=inside[:, None])
    if MOMENTS:
        kept = inside & (tl.load(mask + client * images + image) != 0)
        value = tl.where(kept[:, None], out.to(tl.float32), 0.0)
        count = tl.sum(kept.to(tl.float32), 0)
        total = tl.sum(value, 0)
        mean = total / tl.maximum(count, 1.0)
        squares = tl.maximum(tl.sum(value * value, 0) - total * mean, 0.0)
        into = part + (client * ((rows + BM - 1) // BM) + tile) * (3 * CO) + column
        tl.store(into, tl.zeros([BN], tl.float32) + count)
        tl.store(into + CO, mean)
        tl.store(into + 2 * CO, squares)


@triton.jit
def _input_gradient(
    dy, w, dx, images,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """One tile of dx. EVEN: BM divides its rows."""
    NB: tl.constexpr = CI // BN
    KB: tl.constexpr = CO // BK
    ALL: tl.constexpr = KH * KW * CI
    tile, block = tl.program_id(0) // NB, tl.program_id(0) % NB
    client = tl.program_id(1).to(tl.int64)
    rows = images * (H * W)
    row = tile * BM + tl.arange(0, BM)
    inside = row < rows
    safe = row
    if not EVEN:
        safe = tl.where(inside, row, 0)
    image, within = safe // (H * W), safe % (H * W)
    r, c = within // W + PAD, within % W + PAD
    column = block * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    from_dy = dy + client * images * (OH * OW * CO) + (((image * OH + r) * OW + c) * CO)[:, None] + k[None, :]
    from_w = w + client * (CO * ALL) + k[:, None] * ALL + column[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(KH * KW * KB):
        tap, part_of_k = step // KB, step % KB
        down, right = tap // KW, tap % KW
        real = (r >= down) & (r - down < OH) & (c >= right) & (c - right < OW)
        a = tl.load(from_dy + (part_of_k * BK - (down * OW + right) * CO), mask=real[:, None], other=0.0)
        b = tl.load(from_w + (part_of_k * (BK * ALL) + tap * CI))
        acc = tl.dot(a, b, acc, input_precision="ieee")
    into = dx + client * rows * CI + row[:, None] * CI + column[None, :]
    out = acc.to(dx.dtype.element_ty)
    if EVEN:
        tl.store(into, out)
    else:
        tl.store(into, out, mask=inside[:, None])


@triton.jit(do_not_specialize=["splits", "steps"])
def _filter_gradient(
    x, dy, part, images, splits, steps,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EVEN: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Block of dw [Co, kh * kw * Ci] over `steps` tiles of pixels. EVEN: BK divides them; FULL: BN the columns."""
    ALL: tl.constexpr = KH * KW * CI
    MB: tl.constexpr = CO // BM
    GRAIN: tl.constexpr = CI if CI < BN else BN
    block, split = tl.program_id(0), tl.program_id(1)
    client = tl.program_id(2).to(tl.int64)
    rows = images * (OH * OW)
    out = (block % MB) * BM + tl.arange(0, BM)
    column = (block // MB) * BN + tl.arange(0, BN)
    tap = column // CI
    if not FULL:
        tap = tl.minimum(tap, KH * KW - 1)
    down, right = tap // KW, tap % KW
    shift = (down * W + right) * CI + column % CI
    shift = tl.max_contiguous(tl.multiple_of(shift, GRAIN), GRAIN)
    from_x = x + client * images * (H * W * CI) + shift[None, :]
    from_dy = dy + client * rows * CO + out[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    last = tl.minimum(split * steps + steps, (rows + BK - 1) // BK)
    for step in range(split * steps, last):
        pixel = step * BK + tl.arange(0, BK)
        image, within = pixel // (OH * OW), pixel % (OH * OW)
        r, c = within // OW - PAD, within % OW - PAD
        at = from_x + (((image * H + r) * W + c) * CI)[:, None]
        if PAD > 0:
            y, z = r[:, None] + down[None, :], c[:, None] + right[None, :]
            real = (pixel < rows)[:, None] & (y >= 0) & (y < H) & (z >= 0) & (z < W)
            b = tl.load(at, mask=real, other=0.0)
            a = tl.load(from_dy + pixel[:, None] * CO, mask=(pixel < rows)[:, None], other=0.0)
        elif EVEN:
            b = tl.load(at)
            a = tl.load(from_dy + pixel[:, None] * CO)
        else:
            b = tl.load(at, mask=(pixel < rows)[:, None], other=0.0)
            a = tl.load(from_dy + pixel[:, None] * CO, mask=(pixel < rows)[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), b, acc, input_precision="ieee")
    into = part + (client * splits + split) * (CO * ALL) + out[:, None] * ALL + column[None, :]
    if FULL:
        tl.store(into, acc)
    else:
        tl.store(into, acc, mask=(column < ALL)[None, :])


@triton.jit(do_not_specialize=["splits"])
def _add_parts(part, total, splits, size, BLOCK: tl.constexpr):
    """[K, splits, size] -> [K, size], in order."""
    client = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    acc = tl.zeros([BLOCK], tl.float32)
    for split in range(splits):
        acc += tl.load(part + (client * splits + split) * size + at, mask=inside, other=0.0)
    tl.store(total + client * size + at, acc, mask=inside)


class Sizes(NamedTuple):
    """The sizes of one layer, under the names that the kernels use."""

    H: int
    W: int
    OH: int
    OW: int
    CI: int
    CO: int
    KH: int
    KW: int
    PAD: int


def sizes(x: Tensor, w: Tensor, pad: int) -> Sizes:
    height, width, inputs = x.shape[2:]
    outputs, tall, wide = w.shape[1:4]
    return Sizes(
        height, width, height + 2 * pad - tall + 1, width + 2 * pad - wide + 1, inputs, outputs, tall, wide, pad
    )


def power_in(size: int, most: int) -> int:
    """The largest power of two up to `most` that divides."""
    return min(size & -size, most)


def convolve(x: Tensor, w: Tensor, mask: Tensor, pad: int, *, moments: bool) -> tuple[Tensor, Tensor]:
    """y, and the moments [K, tiles, 3, Co] of its tiles for `pooling.statistics` if they are wanted."""
    here, (clients, images) = sizes(x, w, pad), x.shape[:2]
    bn, bk = power_in(here.CO, 128), power_in(here.CI, 64)
    bm, warps, stages = (128, 4, 3) if bn == 128 else (256, 8, 4)
    rows = images * here.OH * here.OW
    tiles = triton.cdiv(rows, bm)
    y = x.new_empty(clients, images, here.OH, here.OW, here.CO)
    part = torch.empty(clients, tiles if moments else 0, 3, here.CO, dtype=torch.float32, device=x.device)
    launch(
        _forward, (tiles * (here.CO // bn), clients),
        x, w, mask, y, part, images,
        **here._asdict(), BM=bm, BN=bn, BK=bk, EVEN=rows % bm == 0, MOMENTS=moments,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y, part


def input_gradient(dy: Tensor, w: Tensor, x: Tensor, pad: int) -> Tensor:
    here, (clients, images) = sizes(x, w, pad), x.shape[:2]
    bn, bk = power_in(here.CI, 128), power_in(here.CO, 64)
    bm, rows = 128 if bn == 128 else 256, images * here.H * here.W
    dx = torch.empty_like(x)
    launch(
        _input_gradient, (triton.cdiv(rows, bm) * (here.CI // bn), clients),
        dy, w, dx, images, **here._asdict(), BM=bm, BN=bn, BK=bk, EVEN=rows % bm == 0, num_warps=4, num_stages=3,
    )  # fmt: skip
    return dx


def filter_gradient(dy: Tensor, w: Tensor, x: Tensor, pad: int) -> Tensor:
    """dw [K, Co, kh, kw, Ci] in float32."""
    here, (clients, images) = sizes(x, w, pad), x.shape[:2]
    bm, bn, bk = power_in(here.CO, 128), 128, 64
    rows, columns = images * here.OH * here.OW, here.KH * here.KW * here.CI
    blocks = triton.cdiv(columns, bn) * (here.CO // bm)
    splits = max(1, min(36 // blocks, triton.cdiv(rows, 2048)))
    part = torch.empty(clients, splits, here.CO * columns, dtype=torch.float32, device=x.device)
    launch(
        _filter_gradient, (blocks, splits, clients),
        x, dy, part, images, splits, triton.cdiv(triton.cdiv(rows, bk), splits),
        **here._asdict(), BM=bm, BN=bn, BK=bk, EVEN=rows % bk == 0, FULL=columns % bn == 0, num_warps=4, num_stages=3,
    )  # fmt: skip
    return added(part).view(w.shape)


def added(part: Tensor) -> Tensor:
    """[K, splits, size] -> [K, size]."""
    clients, splits, size = part.shape
    if splits == 1:
        return part.view(clients, size)
    total = torch.empty(clients, size, dtype=torch.float32, device=part.device)
    launch(_add_parts, (triton.cdiv(size, 1024), clients), part, total, splits, size, BLOCK=1024, num_warps=4)
    return total
