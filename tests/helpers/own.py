"""Factories as a user would write them, for specs that name a file."""

import numpy as np
import torch
from torch import Tensor, nn

from fedskew.core.dataset import Dataset
from tests.helpers.cached import whole_digits

SIZES = (37, 20, 9, 33)
"""With batches of 16: partial last batches of 5, 4, 9 and a single image."""


def ragged_digits() -> Dataset:
    """A hundred digits and four clients, each of which misses several classes."""
    whole = whole_digits()
    classes = ((0, 1, 2, 3), (3, 4, 5), (6, 7), (8, 9, 0, 4, 5))
    chosen: list[int] = []
    for client, (size, held) in enumerate(zip(SIZES, classes, strict=True)):
        members = np.flatnonzero(np.isin(whole.y_train.numpy(), held))
        chosen += [int(i) for i in members[client * 50 : client * 50 + size]]
    index = torch.tensor(chosen)
    return Dataset(
        name="ragged",
        x_train=whole.x_train[index],
        y_train=whole.y_train[index],
        x_test=whole.x_test[:60],
        y_test=whole.y_test[:60],
        num_classes=10,
        mean=whole.mean,
        std=whole.std,
        client_train=torch.arange(4).repeat_interleave(torch.tensor(SIZES)),
    )


def seed_scaled_digits(seed: int) -> Dataset:
    """Normalisation that depends on the seed, as a random subset's would."""
    data = ragged_digits()
    return Dataset(**{**vars(data), "mean": (float(seed),), "std": (1.0 + seed,)})


class Plain(nn.Module):
    """No mask, no batch norm: a cohort runs by vmap."""

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(features, 12), nn.Tanh(), nn.LayerNorm(12))
        self.head = nn.Linear(12, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


def plain(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Plain(int(np.prod(input_shape)), num_classes)


def normed(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """PyTorch's own batch norm, which knows no mask."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, num_classes)
    )


def instance_normed(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Instance norm with running statistics: buffers that a training pass changes."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 4, 3),
        nn.InstanceNorm2d(4, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(144, num_classes),
    )


def dropping(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(int(np.prod(input_shape)), num_classes))


class FailsInTraining(nn.Flatten):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise RuntimeError("not like this")
        return super().forward(x)


def broken(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A model that answers, but cannot be trained."""
    return nn.Sequential(FailsInTraining(), nn.Linear(int(np.prod(input_shape)), num_classes))


def unfit(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A model whose first layer does not fit its input."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)) + 1, num_classes))


def few(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A model with too few outputs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), num_classes - 1))
