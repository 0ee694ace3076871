"""Layers whose leading axes are free: parameters [..., *shape] meet inputs [..., B, *features].

They keep PyTorch's names, shapes and initialisation, so that a trained state dict loads into the ordinary layer.
With leading axes a convolution runs as one grouped convolution and a norm as one norm over groups of channels.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedskew.models import kernels

_RHO = 1e-3


class Linear(nn.Linear):
    """x @ weight^T + bias."""

    def forward(self, input: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return functional.linear(input, self.weight, self.bias)
        if self.weight.ndim > 3:
            return input @ self.weight.mT + self.bias.unsqueeze(-2)
        if self.out_features > input.shape[-2] and not input.is_cuda:
            return torch.baddbmm(self.bias.unsqueeze(-2), input, self.weight.mT)
        # The same product transposed: for few outputs its backward is several times faster on a CPU, and on a GPU the
        # gradient of the weights lies as they do.
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, input.mT).mT


class Conv2d(nn.Conv2d):
    """A convolution of images [..., B, C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        return self.convolve(input, self.bias)

    def convolve(self, input: Tensor, shift: Tensor | None) -> Tensor:
        """The convolution with a bias of the caller's choice."""
        lead, filters = self.weight.shape[:-4], self.filters()
        if not lead and input.is_cuda and self.thin:
            return self._as_product(input, filters, shift)
        if not lead:
            out: Tensor = self._conv_forward(input, filters, shift)
            return out
        groups = math.prod(lead)
        bias = None if shift is None else shift.flatten()
        out = functional.conv2d(
            _channels(input, lead), filters.flatten(0, -4), bias, self.stride, self.padding, groups=groups
        )
        return _lead(out, lead)

    def filters(self) -> Tensor:
        """What images are convolved with."""
        return self.weight

    @property
    def suits_together(self) -> bool:
        """Whether our kernels with a client axis can take its filters."""
        plain = (
            type(self) is Conv2d and self.bias is not None and (*self.stride, *self.dilation, self.groups) == (1,) * 5
        )
        square = isinstance(self.padding, tuple) and len(set(self.padding)) == 1
        return plain and square and kernels.suit_together(self.in_channels, self.out_channels, self._window)

    def together(self, input: Tensor) -> bool:
        """Whether they take these images too: one axis of clients, and bfloat16 on a GPU."""
        if self.weight.ndim != 5 or not self.suits_together or not kernels.take_together(input):
            return False
        if input.requires_grad and self.in_channels < 16:
            return False  # no gradient of a first layer's images
        height, width = (side + 2 * int(self.padding[0]) for side in input.shape[-2:])
        pixels = input.shape[1] * height * width
        return kernels.suit_together(self.in_channels, self.out_channels, self._window, pixels)

    @property
    def _window(self) -> int:
        return math.prod(self.kernel_size)

    def relu_pool(self, x: Tensor) -> Tensor:
        """Convolution, ReLU and 2x2 max-pooling of clients together (CUDA)."""
        from fedskew.models.kernels.grouped_blocks import conv_relu_pool

        assert self.bias is not None
        return conv_relu_pool(x, self.weight, self.bias, int(self.padding[0]))

    @property
    def thin(self) -> bool:
        """Few values per window, as in the first layer: cuDNN has no good kernels for that, a matrix product does."""
        steps = self.stride == (1, 1) or (self.stride == (2, 2) and self.in_channels < 16)
        return math.prod(self.weight.shape[1:]) <= 128 and steps

    def _as_product(self, input: Tensor, filters: Tensor, shift: Tensor | None) -> Tensor:
        """Windows as rows [B*H*W, C*k*k] times filters; the result lies channels-last, as the next layer wants it."""
        if torch.is_autocast_enabled(input.device.type):
            input = input.to(torch.get_autocast_dtype(input.device.type))
        assert not isinstance(self.padding, str)
        (tall, wide), (up, left), step = self.kernel_size, self.padding, self.stride[0]
        height, width = (input.shape[2] + 2 * up - tall) // step + 1, (input.shape[3] + 2 * left - wide) // step + 1
        if kernels.available() and not input.requires_grad:
            from fedskew.models.kernels.windows import windows

            flat = windows(input, tall, wide, up, left, step)
        else:
            cut = functional.pad(input, (left, left, up, up)).unfold(2, tall, step).unfold(3, wide, step)
            flat = cut.permute(0, 2, 3, 1, 4, 5).reshape(len(input) * height * width, -1)
            flat = functional.pad(flat, (0, -flat.shape[1] % 8))  # rows of whole 16-byte words
        filters = filters.reshape(self.out_channels, -1)
        filters = functional.pad(filters, (0, flat.shape[1] - filters.shape[1]))
        out = functional.linear(flat, filters, shift)
        return out.view(len(input), height, width, -1).permute(0, 3, 1, 2)


class StandardConv2d(Conv2d):
    """Filters are standardised in the forward pass: rho (W_o - mean) / (std + 1e-5) for each output o, rho = 0.001.

    Weight standardisation (Qiao et al., 2019) with the constant of FedWSQ (ICCV 2025). A norm must follow, which
    cancels rho. There is no bias, since it would dominate such small filters.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding, bias=False)

    def filters(self) -> Tensor:
        over, values = (-3, -2, -1), math.prod(self.weight.shape[-3:])
        centred = self.weight - self.weight.mean(over, keepdim=True)
        std: Tensor = torch.linalg.vector_norm(centred, dim=over, keepdim=True) / math.sqrt(max(1, values - 1))
        return centred * (_RHO / (std + 1e-5))


class GroupNorm(nn.GroupNorm):
    """Group norm looks at one image at a time, so a padded image disturbs no other."""

    def forward(self, input: Tensor) -> Tensor:
        assert self.weight is not None
        assert self.bias is not None
        lead = self.weight.shape[:-1]
        plain = functional.group_norm(input.flatten(0, len(lead)), self.num_groups, eps=self.eps)
        return plain.view(input.shape) * _per_channel(self.weight) + _per_channel(self.bias)


class BatchNorm(nn.Module):
    """Batch norm over the images that the mask keeps, with running statistics as buffers.

    A batch in which a client has only one image is normalised with the running statistics, which it leaves alone.
    Without a mask and with two images or more this is `torch.nn.BatchNorm2d`.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        lead = self.weight.shape[:-1]
        training = self.training and (mask is not None or x.shape[-4] > 1)
        if training and mask is not None:
            return self._masked(x, mask)
        mean, var = (stat.expand(self.weight.shape).flatten() for stat in (self.running_mean, self.running_var))
        if training:
            mean, var = mean.clone(), var.clone()
        weight, bias = self.weight.flatten(), self.bias.flatten()
        out = functional.batch_norm(_channels(x, lead), mean, var, weight, bias, training, self.momentum, self.eps)
        if training:
            self.running_mean, self.running_var = mean.view(self.weight.shape), var.view(self.weight.shape)
        return _lead(out, lead)

    def relu_pool(self, x: Tensor, shift: Tensor, seen: "Seen") -> Tensor:
        """Norm of x + shift, ReLU and 2x2 max-pooling as one kernel (training, no leading axes, CUDA)."""
        from fedskew.models.kernels.norm_relu_pool import norm_relu_pool

        stats = self.running_mean, self.running_var
        made = norm_relu_pool(x, shift, self.weight, self.bias, *stats, *seen, self.momentum, self.eps)
        self.running_mean, self.running_var = made[1].detach(), made[2].detach()
        return made[0]

    def sum_relu(self, x: Tensor, residual: Tensor | None, seen: "Seen", *, relu: bool) -> Tensor:
        """Norm, sum with a residual and ReLU, each of the two if wanted (training, no leading axes, CUDA)."""
        from fedskew.models.kernels.norm_relu import norm_relu

        own = self.weight, self.bias, self.running_mean, self.running_var
        made = norm_relu(x, residual, *own, *seen, relu, self.momentum, self.eps)
        self.running_mean, self.running_var = made[1].detach(), made[2].detach()
        return made[0]

    def after(self, conv: Conv2d, x: Tensor, seen: "Seen") -> Tensor:
        """Convolution, norm, ReLU and 2x2 max-pooling of clients together (training, CUDA)."""
        from fedskew.models.kernels.grouped_blocks import conv_norm_relu_pool

        assert conv.bias is not None
        own = self.weight, self.bias, self.running_mean, self.running_var
        made = conv_norm_relu_pool(
            x, conv.weight, conv.bias, *own, *seen, int(conv.padding[0]), self.momentum, self.eps
        )
        self.running_mean, self.running_var = made[1], made[2]
        return made[0]

    def folded(self, conv: Conv2d, x: Tensor) -> Tensor:
        """The same in evaluation: with running statistics the norm is one more factor of filters and bias."""
        from fedskew.models.kernels.grouped_blocks import conv_relu_pool

        assert conv.bias is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = (conv.bias - self.running_mean) * scale + self.bias
        return conv_relu_pool(x, conv.weight * scale[..., None, None, None], shift, int(conv.padding[0]))

    def _masked(self, x: Tensor, mask: Tensor) -> Tensor:
        kind, x = x.dtype, x.to(self.running_mean.dtype)  # statistics are never in reduced precision
        kept = mask.to(x.dtype)[..., None, None, None]
        images = mask.sum(-1, keepdim=True).to(x.dtype)
        values = images * (x.shape[-1] * x.shape[-2])
        over = (-4, -2, -1)
        mean = (x * kept).sum(over) / values
        var = ((x - _per_channel(mean)).square() * kept).sum(over) / values
        several = images > 1
        used_mean = torch.where(several, mean, self.running_mean)
        used_var = torch.where(several, var, self.running_var)
        unbiased = var.detach() * values / (values - 1).clamp(min=1)
        step = self.momentum * several.to(x.dtype)
        self.running_mean = self.running_mean + step * (mean.detach() - self.running_mean)
        self.running_var = self.running_var + step * (unbiased - self.running_var)
        scale = self.weight * (used_var + self.eps).rsqrt()
        return (x * _per_channel(scale) + _per_channel(self.bias - used_mean * scale)).to(kind)


Seen = tuple[Tensor, Tensor]


def seen(x: Tensor, mask: Tensor | None) -> Seen:
    """Which of the images [..., B, C, H, W] count, as bytes, and how many: what the fused kernels take."""
    if mask is None:
        every = torch.ones(x.shape[:-3], dtype=torch.uint8, device=x.device)
        return every, torch.full(x.shape[:-4], x.shape[-4], dtype=torch.int64, device=x.device)
    return mask.to(torch.uint8), mask.sum(-1)


def relu_pool2(x: Tensor, shift: Tensor) -> Tensor:
    """ReLU of x + shift and 2x2 max-pooling as one kernel."""
    from fedskew.models.kernels.norm_relu_pool import relu_pool

    return relu_pool(x, shift)


def max_pool2(x: Tensor) -> Tensor:
    """2x2 max-pooling of images [..., C, H, W]."""
    pooled = functional.max_pool2d(x.flatten(0, -4), 2)
    return pooled.view(*x.shape[:-3], *pooled.shape[1:])


def _per_channel(leaf: Tensor) -> Tensor:
    """[..., C] -> [..., 1, C, 1, 1]."""
    return leaf[..., None, :, None, None]


def _channels(x: Tensor, lead: torch.Size) -> Tensor:
    """[*lead, B, C, H, W] -> [B, prod(lead) * C, H, W]: clients side by side as channels."""
    if not lead:
        return x
    flat = x.flatten(0, len(lead) - 1)
    return flat.transpose(0, 1).flatten(1, 2)


def _lead(x: Tensor, lead: torch.Size) -> Tensor:
    """Back from channels side by side to leading axes."""
    if not lead:
        return x
    clients = math.prod(lead)
    apart = x.view(len(x), clients, -1, *x.shape[2:]).transpose(0, 1)
    return apart.reshape(*lead, *apart.shape[1:])
