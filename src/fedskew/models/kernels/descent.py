"""A step of gradient descent in place, in one pass over memory, for those of K clients that are still at work."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedskew.models.kernels.launch import launch


@triton.jit
def _descend(
    w, v, g, rate, active, size, momentum, decay, MOMENTUM: tl.constexpr, DECAY: tl.constexpr, BLOCK: tl.constexpr
):
    client = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    moves = (at < size) & (tl.load(active + client) != 0)
    here = client * size + at
    weight = tl.load(w + here, mask=moves, other=0.0)
    step = tl.load(g + here, mask=moves, other=0.0)
    if DECAY:
        step += decay * weight
    if MOMENTUM:
        step += momentum * tl.load(v + here, mask=moves, other=0.0)
        tl.store(v + here, step, mask=moves)
    tl.store(w + here, weight - tl.load(rate) * step, mask=moves)


def descend(
    w: Tensor, v: Tensor | None, g: Tensor, rate: Tensor, active: Tensor, momentum: float, decay: float
) -> None:
    """w -= rate * v with v = momentum * v + g + decay * w, for clients whose byte in `active` [K] is not 0.

    w and v [K, ...] lie alike, each client's values together.
    """
    if g.stride() != w.stride():
        g = torch.empty_like(w).copy_(g)
    size = w[0].numel()
    launch(
        _descend, (triton.cdiv(size, 1024), len(w)),
        w, w if v is None else v, g, rate, active, size, momentum, decay,
        MOMENTUM=v is not None, DECAY=decay != 0.0, BLOCK=1024, num_warps=4,
    )  # fmt: skip
