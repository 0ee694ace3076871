"""Random crops and mirror images, vectorised over a batch. Each image has its own random draw."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Augment = Callable[[Tensor, Tensor], Tensor]
EDGE = 4


def crop_flip(images: Tensor, draws: Tensor) -> Tensor:
    """Images [n, C, H, W] shifted by up to four pixels each way, with black edges, and mirrored half the time.

    A draw is any non-negative integer; its residues choose row, column and mirroring.
    """
    steps, (height, width) = 2 * EDGE + 1, images.shape[-2:]
    down, right, mirror = draws % steps, draws // steps % steps, draws // steps**2 % 2
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(len(images), width)
    columns = right[:, None] + torch.where(mirror[:, None] == 1, width - 1 - columns, columns)
    padded = functional.pad(images, (EDGE, EDGE, EDGE, EDGE))
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


AUGMENTS: dict[str, Augment | None] = {"none": None, "crop_flip": crop_flip}
