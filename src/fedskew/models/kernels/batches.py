"""Images of a batch, ready for a network: chosen, shifted, mirrored, normalised and laid channels-last in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.models.kernels.launch import launch


@triton.jit
def _gather(
    x, index, draws, mean, std, out,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, EDGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels of one image. Row, column and mirroring come from the image's draw as in `crop_flip`."""
    image = tl.program_id(0).to(tl.int64)
    pixel, channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CP)
    r, c = pixel // W, pixel % W
    inside = pixel < H * W
    if EDGE > 0:
        steps: tl.constexpr = 2 * EDGE + 1
        draw = tl.load(draws + image)
        c = tl.where(draw // (steps * steps) % 2 == 1, W - 1 - c, c)
        r = r + (draw % steps).to(tl.int32) - EDGE
        c = c + (draw // steps % steps).to(tl.int32) - EDGE
    known = (channel < C)[None, :]
    real = (inside & (r >= 0) & (r < H) & (c >= 0) & (c < W))[:, None] & known
    source = tl.load(index + image) * (C * H * W)
    value = tl.load(x + source + (r * W + c)[:, None] + (channel * (H * W))[None, :], mask=real, other=0).to(tl.float32)
    centre = tl.load(mean + channel, mask=channel < C, other=0.0)
    scale = tl.load(std + channel, mask=channel < C, other=1.0)
    ready = ((value - centre[None, :]) / scale[None, :]).to(out.dtype.element_ty)
    into = out + image * (H * W * C) + pixel[:, None] * C + channel[None, :]
    tl.store(into, ready, mask=inside[:, None] & known)


def images(
    x: Tensor, index: Tensor, draws: Tensor | None, mean: Tensor, std: Tensor, edge: int, kind: torch.dtype
) -> Tensor:
    """Images [K, B, C, H, W] of this type, channels-last, from stored ones [n, C, H, W] by their numbers [K, B].

    With draws [K, B] they are shifted by up to `edge` pixels and mirrored; `mean` and `std` are per channel.
    """
    _, channels, height, width = x.shape
    out = torch.empty(*index.shape, height, width, channels, dtype=kind, device=x.device)
    block = min(1024, triton.next_power_of_2(height * width))
    launch(
        _gather, (index.numel(), triton.cdiv(height * width, block)),
        x, index, index if draws is None else draws, mean, std, out,
        H=height, W=width, C=channels, CP=triton.next_power_of_2(channels), EDGE=0 if draws is None else edge,
        BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out.permute(0, 1, 4, 2, 3)
