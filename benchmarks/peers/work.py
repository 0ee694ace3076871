"""What every simulator is given: the clients' examples in a file, the settings, and a loss to end with.

This module and those of the peers run where fedskew is not installed: numpy and torch only.
"""

import json
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.sizes import CLASSES, FEATURES


@lru_cache
def clients(file: str) -> list[tuple[Tensor, Tensor]]:
    """Examples and labels of each client."""
    held = np.load(file)
    cuts = held["offsets"][1:-1]
    return [
        (torch.from_numpy(x), torch.from_numpy(y))
        for x, y in zip(np.split(held["x"], cuts), np.split(held["y"], cuts), strict=True)
    ]


def model(file: str) -> nn.Linear:
    """The model at the parameters that everybody begins with."""
    held, linear = np.load(file), nn.Linear(FEATURES, CLASSES)
    linear.load_state_dict({"weight": torch.from_numpy(held["weight"]), "bias": torch.from_numpy(held["bias"])})
    return linear


@torch.no_grad()
def loss(linear: nn.Linear, file: str) -> float:
    """Mean cross entropy over the examples of all clients."""
    x, y = (torch.cat(part) for part in zip(*clients(file), strict=True))
    return functional.cross_entropy(linear(x), y).item()


def tell(out: str, seconds: list[float], linear: nn.Linear, file: str) -> None:
    """Leave the seconds of every round and the loss after the last one."""
    Path(out).write_text(json.dumps({"seconds": seconds, "loss": loss(linear, file)}))


def asked() -> tuple[str, int, str]:
    """The file of the clients, the number of rounds, and the file for the answer."""
    return sys.argv[1], int(sys.argv[2]), sys.argv[3]
