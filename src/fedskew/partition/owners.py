"""What the partitioners share: checked labels, even cuts, and index lists from an array of owners."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]


def whole(name: str, value: int) -> None:
    """Refuse anything but an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; allowed: integers of at least 1")


def classes(labels: Tensor, num_clients: int) -> tuple[Ints, Ints]:
    """Each sample's class as 0..C-1, numbered over the classes that occur, and their sizes [C]."""
    whole("the number of clients", num_clients)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels are {labels.dtype} {tuple(labels.shape)}; they must be a vector of integers")
    if not len(labels):
        raise ValueError("there are no labels; a partition needs at least one sample")
    if num_clients > len(labels):
        raise ValueError(f"{num_clients} clients are more than the {len(labels)} examples to share; use fewer clients")
    _, number, sizes = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    return number.astype(np.int64), sizes.astype(np.int64)


def even(total: int, parts: int) -> Ints:
    """Sizes of `parts` consecutive pieces of range(total), cut at i*total//parts."""
    return np.diff(np.arange(parts + 1, dtype=np.int64) * total // parts)


def deal(number: Ints, pieces: Ints, generator: np.random.Generator) -> Ints:
    """Each sample's owner when every class c is shuffled and client i gets the next pieces[i, c] of it."""
    clients = np.arange(len(pieces), dtype=np.int64)
    order = np.lexsort((generator.random(len(number)), number))
    owner = np.empty_like(number)
    owner[order] = np.repeat(np.tile(clients, pieces.shape[1]), pieces.T.ravel())
    return owner


def collect(owner: Ints, num_clients: int) -> list[Tensor]:
    """Each client's samples, ascending, from each sample's owner."""
    ends = np.cumsum(np.bincount(owner, minlength=num_clients))
    parts = np.split(np.argsort(owner, kind="stable"), ends[:-1])
    return [torch.from_numpy(part.astype(np.int64)) for part in parts]
