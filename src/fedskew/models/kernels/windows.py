"""The windows of a convolution as rows of a matrix, for layers with few input channels."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather(
    x, out, rows, H, W, OH, OW, up, left,
    CHANNELS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr, STRIDE: tl.constexpr,
    K: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Row (image, r, c) holds the values of its window in the order channel, row, column; the rest are zero."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, K)
    image, within = row // (OH * OW), row % (OH * OW)
    r, c = within // OW * STEP - up, within % OW * STEP - left
    channel, inner = k // (TALL * WIDE), k % (TALL * WIDE)
    down, right = inner // WIDE, inner % WIDE
    y = r[:, None] + down[None, :]
    z = c[:, None] + right[None, :]
    real = (row < rows)[:, None] & (channel < CHANNELS)[None, :] & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    at = ((image[:, None] * CHANNELS + channel[None, :]) * H + y) * W + z
    value = tl.load(x + at, mask=real, other=0.0)
    tl.store(out + row[:, None] * STRIDE + k[None, :], value, mask=(row < rows)[:, None] & (k < STRIDE)[None, :])


@torch.library.custom_op("fedskew::windows", mutates_args=())
def windows(x: Tensor, tall: int, wide: int, up: int, left: int, step: int) -> Tensor:
    """[n, C, H, W] -> [n * OH * OW, C * tall * wide], rows filled up with zeros to a multiple of eight."""
    x = x.contiguous()
    _, channels, height, width = x.shape
    oh, ow = (height + 2 * up - tall) // step + 1, (width + 2 * left - wide) // step + 1
    out = _empty(x, tall, wide, up, left, step)
    rows = len(out)
    _gather[(triton.cdiv(rows, 64),)](
        x, out, rows, height, width, oh, ow, up, left,
        CHANNELS=channels, TALL=tall, WIDE=wide, STEP=step, STRIDE=out.shape[1],
        K=triton.next_power_of_2(out.shape[1]), ROWS=64, num_warps=4,
    )  # fmt: skip
    return out


def _empty(x: Tensor, tall: int, wide: int, up: int, left: int, step: int) -> Tensor:
    n, channels, height, width = x.shape
    rows = n * ((height + 2 * up - tall) // step + 1) * ((width + 2 * left - wide) // step + 1)
    values = channels * tall * wide
    return torch.empty(rows, values + -values % 8, dtype=x.dtype, device=x.device)


@windows.register_fake
def _(x, tall, wide, up, left, step):
    return _empty(x, tall, wide, up, left, step)
