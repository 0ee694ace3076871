"""Data sets: arrays in memory, in their stored type, normalised only when a batch is used."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.core import rng, tree

Arrays = tuple[NDArray[Any], NDArray[Any]]
"""Examples and labels."""


@lru_cache(maxsize=32)
def _constant(values: tuple[float, ...], axes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Per-channel values shaped to broadcast against an example."""
    return torch.tensor(values, dtype=dtype, device=device).reshape((-1,) + (1,) * axes)


@dataclass(frozen=True)
class Dataset:
    """Training and test examples with labels 0..num_classes-1.

    `client_train` and `client_test` name the owner of each example (0, 1, ...) if the data set has its own clients.
    `mean` and `std` are per channel, in the units of the stored values; without them values are used unchanged.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    client_train: Tensor | None = None
    client_test: Tensor | None = None
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if len(x) != len(y) or len(y) == 0:
                raise ValueError(f"{self.name}: {len(x)} {part} examples with {len(y)} labels")
            if y.dtype != torch.int64:
                raise ValueError(f"{self.name}: {part} labels are {y.dtype}; allowed: torch.int64")
            low, high = int(y.min()), int(y.max())
            if low < 0 or high >= self.num_classes:
                wrong = low if low < 0 else high
                raise ValueError(f"{self.name}: {part} label {wrong} is outside 0..{self.num_classes - 1}")

    @classmethod
    def of(cls, name: str, train: tuple[Any, Any], test: tuple[Any, Any], num_classes: int, **more: Any) -> "Dataset":
        """From examples and labels for training and for testing, as arrays or tensors; `more` are the other fields."""
        x_train, y_train, x_test, y_test = (torch.as_tensor(values) for values in (*train, *test))
        return cls(name, x_train, y_train, x_test, y_test, num_classes, **more)

    @classmethod
    def of_clients(
        cls, name: str, train: Sequence[Arrays], test: Sequence[Arrays], num_classes: int, **more: Any
    ) -> "Dataset":
        """From the examples and labels of each client, in the order of their numbers."""
        (x, y, owner), (x_test, y_test, owner_test) = _joined(train), _joined(test)
        owners = {"client_train": owner, "client_test": owner_test}
        return cls.of(name, (x, y), (x_test, y_test), num_classes, **owners, **more)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x_train.shape[1:])

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Examples, labels and owners."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def nbytes(self) -> int:
        """The size of all tensors."""
        return sum(value.nbytes for value in self.tensors.values())

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits over all examples, labels and owners, the same on every device."""
        return tree.digest(self.tensors)

    def to(self, device: torch.device | str) -> "Dataset":
        """The same data on a device, still in its stored type."""
        moved: dict[str, Any] = {name: value.to(device) for name, value in self.tensors.items()}
        return replace(self, **moved)

    def prepare(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """A batch [..., *input_shape] of stored values, normalised for the model."""
        x = x.to(dtype)
        if self.mean is None or self.std is None:
            return x
        axes = len(self.input_shape) - 1
        return (x - _constant(self.mean, axes, dtype, x.device)) / _constant(self.std, axes, dtype, x.device)

    def held_out(self, share: float, generator: np.random.Generator) -> NDArray[np.int64]:
        """Training examples to hold out for choosing settings: a share of each class, or of each client's examples."""
        groups = self.y_train if self.client_train is None else self.client_train
        order = generator.permutation(len(groups))
        groups_in_order = groups.cpu().numpy()[order]
        by_group = order[np.argsort(groups_in_order, kind="stable")]
        sizes = np.bincount(groups_in_order)
        found = np.sort(by_group[rng.within(sizes) < np.floor(share * np.repeat(sizes, sizes))])
        if not len(found):
            whose = "class" if self.client_train is None else "client"
            least = math.ceil(1000 / sizes.max()) / 1000
            allowed = f"{least:g} or more" if least < 1 else "0"
            raise ValueError(f"validation is {share:g}, less than one example of any {whose}; allowed: {allowed}")
        return found


def _joined(parts: Sequence[Arrays]) -> tuple[NDArray[Any], NDArray[Any], Tensor]:
    """All examples, labels and owners, client after client."""
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x, y, torch.from_numpy(np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts]))
