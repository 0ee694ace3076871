"""What runs on the GPU for `norm_relu_pool`, whose file has the equations: rows of channels-last images in tiles.

The second axis of the grid is the client, and all arrays begin with an axis of clients; sizes are those of one client.
`moments` is for one client, and its second axis is a tile of channels.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["values", "per_image", "tiles", "grid"])
def moments(x, mask, part, values, per_image, tiles, grid, C, WIDE: tl.constexpr, ROWS: tl.constexpr):
    """Count, mean and sum of squared deviations of this program's rows and columns of [values, C], for one client."""
    program = tl.program_id(0)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    near = tl.load(x + tl.minimum(program * ROWS, values - 1) * C + column).to(tl.float32)
    seen = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, WIDE], tl.float32)  # added up at the end: once per tile would cost more than it reads
    squares = tl.zeros([ROWS, WIDE], tl.float32)
    for tile in range(tiles):
        row = (tile * grid + program) * ROWS + tl.arange(0, ROWS)
        inside = row < values
        kept = inside & (tl.load(mask + row // per_image, mask=inside, other=0) != 0)
        value = tl.load(x + row[:, None] * C + column[None, :], mask=kept[:, None], other=0.0).to(tl.float32)
        off = tl.where(kept[:, None], value - near[None, :], 0.0)
        seen += kept.to(tl.float32)
        sums += off
        squares += off * off
    count, first, second = tl.sum(seen, 0), tl.sum(sums, 0), tl.sum(squares, 0)
    n = tl.maximum(count, 1.0)
    tl.store(part + (program * 3 + 0) * C + column, tl.zeros([WIDE], tl.float32) + count)
    tl.store(part + (program * 3 + 1) * C + column, near + first / n)
    tl.store(part + (program * 3 + 2) * C + column, second - first * first / n)


@triton.jit(do_not_specialize=["grid"])
def statistics(
    part, images, shift, old_mean, old_var, new_mean, new_var, use, momentum, eps, grid, C,
    WIDE: tl.constexpr, CHUNK: tl.constexpr, SHIFT: tl.constexpr = True,
):  # fmt: skip
    """The programs' moments merged; what to normalise with, and the running statistics."""
    client = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    part += client * grid * (3 * C)
    near = tl.load(part + C + column)
    count = tl.zeros([WIDE], tl.float32)
    first = tl.zeros([WIDE], tl.float32)
    second = tl.zeros([WIDE], tl.float32)
    for start in range(0, grid, CHUNK):
        program = start + tl.arange(0, CHUNK)
        inside = (program < grid)[:, None]
        at = part + program[:, None] * 3 * C + column[None, :]
        n = tl.load(at, mask=inside, other=0.0)
        off = tl.load(at + C, mask=inside, other=0.0) - near[None, :]
        count += tl.sum(n, 0)
        first += tl.sum(n * off, 0)
        second += tl.sum(tl.load(at + 2 * C, mask=inside, other=0.0) + n * off * off, 0)
    n = tl.maximum(count, 1.0)
    mean = near + first / n
    squares = tl.maximum(second - first * first / n, 0.0)
    several = tl.load(images + client) > 1
    moved = tl.zeros([WIDE], tl.float32)
    if SHIFT:
        moved = tl.load(shift + client * C + column).to(tl.float32)
    settle(
        count, mean, squares, several, moved, old_mean, old_var, new_mean, new_var, use, momentum, eps,
        client, column, C,
    )  # fmt: skip


@triton.jit
def settle(
    count, mean, squares, several, moved, old_mean, old_var, new_mean, new_var, use, momentum, eps, client, column, C
):  # fmt: skip
    """Write what to normalise with (mean, 1 / deviation, k) and the running statistics after a batch."""
    own = client * C + column
    use += client * (3 * C)
    n = tl.maximum(count, 1.0)
    before_mean = tl.load(old_mean + own).to(tl.float32)
    before_var = tl.load(old_var + own).to(tl.float32)
    step = tl.where(several, momentum, 0.0)
    tl.store(new_mean + own, before_mean + step * (mean + moved - before_mean))
    tl.store(new_var + own, before_var + step * (squares / tl.maximum(count - 1.0, 1.0) - before_var))
    tl.store(use + column, tl.where(several, mean, before_mean - moved))
    tl.store(use + C + column, 1.0 / tl.sqrt_rn(tl.where(several, squares / n, before_var) + eps))
    tl.store(use + 2 * C + column, tl.where(several, 1.0 / n, 0.0))


@triton.jit
def largest(
    x, use, weight, bias, y, top, which, images, H, W, PH, PW,
    C: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Each window's largest value after norm and ReLU, the raw value it came from, and which of the four it was."""
    client = tl.program_id(1).to(tl.int64)
    window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    windows = images * PH * PW
    column = tl.arange(0, C)
    inside = (window < windows)[:, None]
    image, within = window // (PH * PW), window % (PH * PW)
    corner = (image * H + within // PW * 2) * W + within % PW * 2
    x += client * images * H * W * C
    use += client * (3 * C)
    scale = tl.full([C], 1.0, tl.float32)
    offset = tl.load(bias + client * C + column).to(tl.float32)
    if NORM:
        scale = tl.load(weight + client * C + column).to(tl.float32) * tl.load(use + C + column)
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
    out = client * windows * C + window[:, None] * C + column[None, :]
    tl.store(y + out, tl.maximum(best, 0.0), mask=inside)
    if NORM:
        tl.store(top + out, raw, mask=inside)
    tl.store(which + out, tl.where(best > 0.0, index, 4).to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["tiles", "grid"])
def gradient_sums(
    grad, top, which, use, part, windows, tiles, grid, C: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr
):
    """sum(g) and sum(g * xhat) of this program's windows."""
    program = tl.program_id(0)
    client = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, C)
    use += client * (3 * C)
    part += client * grid * (2 * C)
    begin = client * windows * C
    sums = tl.zeros([ROWS, C], tl.float32)
    products = tl.zeros([ROWS, C], tl.float32)
    for tile in range(tiles):
        window = (tile * grid + program) * ROWS + tl.arange(0, ROWS)
        inside = (window < windows)[:, None]
        at = begin + window[:, None] * C + column[None, :]
        on = tl.load(which + at, mask=inside, other=4) < 4
        g = tl.where(on, tl.load(grad + at, mask=inside, other=0.0).to(tl.float32), 0.0)
        sums += g
        if NORM:
            value = tl.load(top + at, mask=inside, other=0.0).to(tl.float32)
            products += g * (value - tl.load(use + column)[None, :])
    tl.store(part + program * 2 * C + column, tl.sum(sums, 0))
    if NORM:
        tl.store(part + (program * 2 + 1) * C + column, tl.sum(products, 0) * tl.load(use + C + column))


@triton.jit(do_not_specialize=["grid"])
def gradients(
    part, use, weight, d_weight, d_bias, d_shift, grid, C,
    WIDE: tl.constexpr, CHUNK: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    own = client * C + column
    part += client * grid * (2 * C)
    use += client * (3 * C)
    first = tl.zeros([WIDE], tl.float32)
    second = tl.zeros([WIDE], tl.float32)
    for start in range(0, grid, CHUNK):
        program = start + tl.arange(0, CHUNK)
        inside = (program < grid)[:, None]
        at = part + program[:, None] * 2 * C + column[None, :]
        first += tl.sum(tl.load(at, mask=inside, other=0.0), 0)
        if NORM:
            second += tl.sum(tl.load(at + C, mask=inside, other=0.0), 0)
    tl.store(d_bias + own, first)
    if NORM:
        k = tl.load(use + 2 * C + column)
        scale = tl.load(weight + own).to(tl.float32) * tl.load(use + C + column)
        tl.store(d_weight + own, second)
        tl.store(d_shift + own, tl.where(k > 0.0, 0.0, scale * first))


@triton.jit
def spread_back(
    x, grad, which, mask, use, weight, d_weight, d_bias, dx, images, H, W, PH, PW, CH, CW,
    C: tl.constexpr, ROWS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """dx at the four pixels of each corner; pixels that pooling dropped still moved the statistics."""
    client = tl.program_id(1).to(tl.int64)
    corner = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, C)
    inside = corner < images * CH * CW
    image, within = corner // (CH * CW), corner % (CH * CW)
    r, c = within // CW, within % CW
    pooled = (inside & (r < PH) & (c < PW))[:, None]
    at = client * images * PH * PW * C + ((image * PH + r) * PW + c)[:, None] * C + column[None, :]
    index = tl.load(which + at, mask=pooled, other=4).to(tl.int32)
    g = tl.load(grad + at, mask=pooled, other=0.0).to(tl.float32)
    x += client * images * H * W * C
    dx += client * images * H * W * C
    if NORM:
        kept = (tl.load(mask + client * images + image, mask=inside, other=0) != 0)[:, None]
        use += client * (3 * C)
        k = tl.load(use + 2 * C + column)
        rstd = tl.load(use + C + column)
        scale = tl.load(weight + client * C + column).to(tl.float32) * rstd
        slope = k * tl.load(d_weight + client * C + column) * rstd
        common = k * tl.load(d_bias + client * C + column) - tl.load(use + column) * slope
    for q in tl.static_range(4):
        row, place = 2 * r + q // 2, 2 * c + q % 2
        real = (inside & (row < H) & (place < W))[:, None]
        here = ((image * H + row) * W + place)[:, None] * C + column[None, :]
        d = tl.where(index == q, g, 0.0)
        if NORM:
            value = tl.load(x + here, mask=real, other=0.0).to(tl.float32)
            d = scale[None, :] * (d - tl.where(kept, common[None, :] + value * slope[None, :], 0.0))
        tl.store(dx + here, d, mask=real)
