"""Synthetic(lambda, mu), after Li et al. (MLSys 2020): every client labels its inputs with its own linear model.

Per client k: size int(lognormal(4, 2)) + 50; u_k ~ N(0, lambda), B_k ~ N(0, mu) (standard deviations); v_k[j] ~ N(B_k,
1), j = 1..60; x ~ N(v_k, diag(j^-1.2)); W_k[60x10], b_k[10] ~ N(u_k, 1); label = argmax(W_k^T x + b_k); nine tenths are
for training. A client's data depend only on the seed and its number, so federations of different sizes share their
first clients.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from fedskew.core import rng
from fedskew.core.checks import check_number
from fedskew.core.dataset import Dataset
from fedskew.core.memory import check_room, free_memory

_FEATURES, _CLASSES, _LEAST = 60, 10, 50
_SCALE = np.arange(1, _FEATURES + 1) ** -0.6


def synthetic(lam: float, mu: float, seed: int, clients: int, max_size: int | None = None) -> Dataset:
    """`max_size` cuts the long tail of client sizes; by default there is no limit."""
    check_number("synthetic: lambda", lam)
    check_number("synthetic: mu", mu)
    check_number("synthetic: max_size", 2 if max_size is None else max_size, 2)
    usual = _LEAST + math.exp(6)  # the mean; examples are held twice, drawn and joined, so half of them suffices
    needed = int(clients * 4 * _FEATURES * (usual if max_size is None else min(_LEAST, max_size)))
    check_room(f"synthetic:{lam:g},{mu:g}", needed, free_memory(torch.device("cpu")), "cpu", "use fewer clients")
    drawn = [_client(lam, mu, rng.stream(seed, "data", k), max_size) for k in range(clients)]
    cuts = [max(1, len(y) * 9 // 10) for _, y in drawn]
    train = [(x[:cut], y[:cut]) for (x, y), cut in zip(drawn, cuts, strict=True)]
    test = [(x[cut:], y[cut:]) for (x, y), cut in zip(drawn, cuts, strict=True)]
    return Dataset.of_clients(f"synthetic:{lam:g},{mu:g}", train, test, _CLASSES)


def _client(
    lam: float, mu: float, generator: np.random.Generator, max_size: int | None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    size = int(generator.lognormal(4, 2)) + _LEAST
    size = size if max_size is None else min(size, max_size)
    u, center = generator.normal(0, lam), generator.normal(0, mu)
    v = generator.normal(center, 1, _FEATURES)
    weight, bias = generator.normal(u, 1, (_FEATURES, _CLASSES)), generator.normal(u, 1, _CLASSES)
    x = generator.normal(v, _SCALE, (size, _FEATURES))
    return x.astype(np.float32), (x @ weight + bias).argmax(1)
