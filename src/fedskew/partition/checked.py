"""A split that the user has made, checked: in a file, or by a function."""

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.core.checks import made_of
from fedskew.partition.owners import Ints


def checked_split(who: str, clients: Any, num_samples: int, num_clients: int | None = None) -> list[Tensor]:
    """The indices of each client: as many clients as asked for, each with at least one index, each index in range and
    none twice. `who` made the split."""
    if isinstance(clients, Tensor | np.ndarray):
        clients = list(clients) if clients.ndim else None
    if not isinstance(clients, list | tuple):
        raise ValueError(f"{who} gives {made_of(clients)}; allowed: a list with the sample indices of each client")
    parts = [_indices(f"{who}: client {client}", part, num_samples) for client, part in enumerate(clients)]
    if num_clients is not None and len(parts) != num_clients:
        raise ValueError(f"{who} has {len(parts)} clients; the run has {num_clients}")
    seen = np.bincount(np.concatenate(parts), minlength=num_samples)
    if (seen > 1).any():
        twice = int(np.argmax(seen > 1))
        raise ValueError(f"{who} lists sample {twice} twice; each sample belongs to at most one client")
    return [torch.from_numpy(part) for part in parts]


def _indices(where: str, part: Any, num_samples: int) -> Ints:
    listed = part.tolist() if isinstance(part, Tensor | np.ndarray) else part
    try:
        if not isinstance(listed, list | tuple | range) or any(isinstance(index, bool) for index in listed):
            raise TypeError
        found = [operator.index(index) for index in listed]
    except TypeError:
        raise ValueError(f"{where} is not a list of sample indices") from None
    if not found:
        raise ValueError(f"{where} has no sample; every client needs at least one")
    if min(found) < 0 or max(found) >= num_samples:
        raise ValueError(f"{where} has indices {min(found)}..{max(found)}; allowed: 0..{num_samples - 1}")
    return np.array(found, np.int64)
