"""Quantity-based label skew Q(a) of the FedLC paper (Zhang et al. 2022), after McMahan et al. (2017)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedskew.partition.owners import classes, collect, even, whole


@dataclass(frozen=True)
class Shards:
    """Samples sorted by label, cut evenly into m*a sets; every client gets `a` of them at random.

    The sort is stable and the cuts are i*n//(m*a), so that no sample is dropped. A client holds about `a` labels: fewer
    if two of its sets have the same label, more if a set straddles two.
    """

    a: int

    def __post_init__(self) -> None:
        whole("shards: a", self.a)

    def __call__(self, labels: Tensor, num_clients: int, generator: np.random.Generator) -> list[Tensor]:
        number, _ = classes(labels, num_clients)
        sets, samples = num_clients * self.a, len(number)
        if sets > samples:
            raise ValueError(
                f"shards:{self.a} over {num_clients} clients makes {sets} sets of {samples} samples; "
                f"use {f'at most shards:{most}, or ' if (most := samples // num_clients) else ''}fewer clients"
            )
        holder = generator.permutation(np.repeat(np.arange(num_clients, dtype=np.int64), self.a))
        owner = np.empty_like(number)
        owner[np.argsort(number, kind="stable")] = np.repeat(holder, even(samples, sets))
        return collect(owner, num_clients)
