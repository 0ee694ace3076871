"""Hand-written GPU kernels, each with a plain reference it is tested against. Nothing here is needed on a CPU."""

from importlib.util import find_spec

import torch
from torch import Tensor

_MOST_VALUES = 1 << 30
_THIN = 128
_WIDTHS = (16, 32, 64, 128)
_ROOMY = ((8, 0), (9, 0), (10, 0), (10, 3))
"""NVIDIA's GPUs that give a block of threads at least 160 KiB of shared memory: A100, H100 and H200, B200, B300."""


def available() -> bool:
    """Whether Triton is installed; PyTorch's CUDA builds bring it."""
    return find_spec("triton") is not None


def fill_tiles(channels: int) -> bool:
    """Whether the kernels with a norm take this many channels."""
    return channels >= 16 and channels & (channels - 1) == 0


def run_together(device: torch.device) -> bool:
    """Whether the kernels with a client axis run there."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    return nvidia and available() and torch.cuda.get_device_capability(device) in _ROOMY


def take_together(x: Tensor) -> bool:
    """Whether they take such images: [K, B, C, H, W] on such a device, products in bfloat16."""
    quick = x.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    return x.ndim == 5 and quick and run_together(x.device)


def product_type(x: Tensor) -> torch.dtype:
    """The type that products with x are taken in."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def suit_together(inputs: int, outputs: int, window: int, pixels: int = 1) -> bool:
    """Whether they take filters [outputs, inputs, *window], and this many pixels in a client's batch."""
    fits = inputs in _WIDTHS or thin(inputs * window)
    return fits and outputs in _WIDTHS and pixels * max(inputs, outputs) <= _MOST_VALUES


def thin(values: int) -> bool:
    """Few values per window, as in the first layer: all of it, and a 1, are the columns of one small matrix."""
    return values < _THIN
