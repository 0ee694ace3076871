"""Convolution, batch norm, ReLU and 2x2 max-pooling of many clients, with one autograd function for the whole block.

Images [K, B, C, H, W] lie channels-last; so do gradients and results. Arithmetic is as in `norm_relu_pool`: the mask
[K, B] keeps images out of the statistics, and a client with one image uses its running statistics.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedskew.models.kernels import grouped_conv, grouped_first, pooling, product_type, thin
from fedskew.models.kernels.grouped_conv import Sizes
from fedskew.models.kernels.launch import launch

_ROWS, _WARPS, _SPLITS = 16, 4, 26


def conv_norm_relu_pool(
    x: Tensor, filters: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    mask: Tensor, images: Tensor, pad: int, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Pooled images [K, B, Co, OH // 2, OW // 2] and the running statistics after this batch.

    Filters are [K, Co, Ci, kh, kw], the mask is bytes [K, B], and `images` [K] how many it keeps.
    """
    y, new_mean, new_var = _Block.apply(  # type: ignore[no-untyped-call]
        x, filters, shift, weight, bias, mean, var, mask, images, (pad, momentum, eps, True)
    )
    return y, new_mean, new_var


def conv_relu_pool(x: Tensor, filters: Tensor, shift: Tensor, pad: int) -> Tensor:
    """relu(conv(x) + shift), pooled."""
    none = [shift] * 6
    y: Tensor = _Block.apply(x, filters, shift, *none, (pad, 0.0, 0.0, False))[0]  # type: ignore[no-untyped-call]
    return y


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
        *small, (pad, momentum, eps, norm) = others
        shift, weight, bias, mean, var, mask, images = (part.contiguous() for part in small)
        kind = product_type(x)
        x, w = _last(x, kind), filters.permute(0, 1, 3, 4, 2)
        here = grouped_conv.sizes(x, w, pad)
        given = shift, weight, bias, mean, var, mask, images, here, momentum, eps, norm
        whole = thin(w[0, 0].numel()) and not ctx.needs_input_grad[0]
        y, new_mean, new_var, kept = _first(x, w, *given) if whole else _later(x, _last_filters(w, kind), *given)
        ctx.save_for_backward(x, weight, mask, *kept)
        ctx.here, ctx.norm, ctx.whole, ctx.kinds = here, norm, whole, [part.dtype for part in (filters, shift, weight)]
        ctx.mark_non_differentiable(new_mean, new_var)
        ctx.set_materialize_grads(False)
        return y.permute(0, 1, 4, 2, 3), new_mean, new_var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mask, *kept = ctx.saved_tensors
        grad = _last(grad, x.dtype)
        if ctx.whole:
            dx: Tensor | None = None
            which, rows, made, sums, use = kept
            dw, *small = grouped_first.gradients(grad, x, which, rows, made, sums, use, weight, ctx.here, norm=ctx.norm)
        else:
            w, y, top, which, use = kept
            dy, *small = _pooled_back(grad, y, top, which, use, weight, mask, norm=ctx.norm)
            dw = grouped_conv.filter_gradient(dy, w, x, ctx.here.PAD)
            dx = grouped_conv.input_gradient(dy, w, x, ctx.here.PAD) if ctx.needs_input_grad[0] else None
            dx = None if dx is None else dx.permute(0, 1, 4, 2, 3)
        d_weight, d_bias, d_shift = small
        of_filters, of_shift, of_norm = ctx.kinds
        dw = dw.permute(0, 1, 4, 2, 3).to(of_filters)
        rest = None, None, None, None, None
        if not ctx.norm:
            return dx, dw, d_bias.to(of_shift), None, None, *rest
        return dx, dw, d_shift.to(of_shift), d_weight.to(of_norm), d_bias.to(of_norm), *rest


Made = tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]
"""Pooled images, running statistics, and what the backward pass needs."""


def _first(
    x: Tensor, w: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    images: Tensor, here: Sizes, momentum: float, eps: float, norm: bool,
) -> Made:  # fmt: skip
    rows = grouped_first.packed(w, here, x.dtype)
    new_mean, new_var, use, sums, made = mean.new_empty(0), var.new_empty(0), shift, shift, shift
    if norm:
        made = grouped_first.products(x, mask, here)
        new_mean, new_var, use, sums = grouped_first.statistics(
            rows, made, images, shift, mean, var, here, momentum, eps
        )
    y, which = grouped_first.forward(x, rows, use, weight, bias if norm else shift, here, norm=norm)
    return y, new_mean, new_var, (which, rows, made, sums, use)


def _later(
    x: Tensor, w: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    images: Tensor, here: Sizes, momentum: float, eps: float, norm: bool,
) -> Made:  # fmt: skip
    y, part = grouped_conv.convolve(x, w, mask, here.PAD, moments=norm)
    new_mean, new_var, use = mean.new_empty(0), var.new_empty(0), shift
    if norm:
        new_mean, new_var, use = _statistics(part, images, shift, mean, var, momentum, eps)
    pooled, top, which = _pooled(y, use, weight, bias if norm else shift, norm=norm)
    return pooled, new_mean, new_var, (w, y, top, which, use)


def _statistics(
    part: Tensor, images: Tensor, shift: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    clients, tiles, _, channels = part.shape
    new_mean, new_var = torch.empty_like(mean), torch.empty_like(var)
    use = torch.empty(clients, 3, channels, dtype=torch.float32, device=part.device)
    wide = min(8, channels)
    launch(
        pooling.statistics, (channels // wide, clients),
        part, images, shift, mean, var, new_mean, new_var, use, momentum, eps, tiles,
        C=channels, WIDE=wide, CHUNK=256, num_warps=_WARPS,
    )  # fmt: skip
    return new_mean, new_var, use


def _pooled(x: Tensor, use: Tensor, weight: Tensor, bias: Tensor, *, norm: bool) -> tuple[Tensor, Tensor, Tensor]:
    clients, images, height, width, channels = x.shape
    ph, pw = height // 2, width // 2
    y = x.new_empty(clients, images, ph, pw, channels)
    top, which = torch.empty_like(y) if norm else y, torch.empty_like(y, dtype=torch.uint8)
    launch(
        pooling.largest, (triton.cdiv(images * ph * pw, _ROWS), clients),
        x, use, weight, bias, y, top, which, images, height, width, ph, pw,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    return y, top, which


def _pooled_back(
    grad: Tensor, x: Tensor, top: Tensor, which: Tensor, use: Tensor, weight: Tensor, mask: Tensor, *, norm: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx and the gradients of weight, bias and shift; without norm only x's shape is used, and bias is the shift."""
    clients, images, height, width, channels = x.shape
    ph, pw, ch, cw = height // 2, width // 2, (height + 1) // 2, (width + 1) // 2
    dx, windows = torch.empty_like(x), images * ph * pw
    d_weight, d_bias, d_shift = torch.empty(3, clients, channels, dtype=torch.float32, device=x.device)
    part = torch.empty(clients, _SPLITS, 2, channels, dtype=torch.float32, device=x.device)
    launch(
        pooling.gradient_sums, (_SPLITS, clients),
        grad, top, which, use, part, windows, triton.cdiv(triton.cdiv(windows, _ROWS), _SPLITS), _SPLITS,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    wide = min(8, channels)
    launch(
        pooling.gradients, (channels // wide, clients),
        part, use, weight, d_weight, d_bias, d_shift, _SPLITS,
        C=channels, WIDE=wide, CHUNK=32, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    launch(
        pooling.spread_back, (triton.cdiv(images * ch * cw, _ROWS), clients),
        x, grad, which, mask, use, weight, d_weight, d_bias, dx, images, height, width, ph, pw, ch, cw,
        C=channels, ROWS=_ROWS, NORM=norm, num_warps=_WARPS,
    )  # fmt: skip
    return dx, d_weight, d_bias, d_shift


def _last(x: Tensor, kind: torch.dtype) -> Tensor:
    """[K, B, C, H, W] -> [K, B, H, W, C], contiguous."""
    return x.permute(0, 1, 3, 4, 2).to(kind).contiguous()


def _last_filters(w: Tensor, kind: torch.dtype) -> Tensor:
    """Filters in this type, contiguous, in one copy."""
    return torch.empty(w.shape, dtype=kind, device=w.device).copy_(w)
