"""Label skew by count, "#label=k" of NIID-Bench (Li et al. 2022): every client holds k classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedskew.partition.owners import Ints, classes, collect, deal, even, whole


@dataclass(frozen=True)
class Labels:
    """Client i holds class i mod C and k-1 others; each class is shuffled and split evenly over its owners.

    The k-1 others are drawn at random, classes that nobody owns yet before all others, so that every class
    has an owner and no sample is lost. Sizes differ, since a class may have few owners or many. Classes are
    those that occur among the labels, in ascending order.
    """

    k: int

    def __post_init__(self) -> None:
        whole("labels: k", self.k)

    def __call__(self, labels: Tensor, num_clients: int, generator: np.random.Generator) -> list[Tensor]:
        number, sizes = classes(labels, num_clients)
        self._check(num_clients, len(sizes))
        owned = self._choose((num_clients, len(sizes)), generator)
        pieces = np.zeros(owned.shape, dtype=np.int64)
        for label, size in enumerate(sizes):
            owners = generator.permutation(np.flatnonzero(owned[:, label]))  # who gets the extra sample
            pieces[owners, label] = even(int(size), len(owners))
        self._check_sizes(pieces, sizes)
        return collect(deal(number, pieces, generator), num_clients)

    def _choose(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Who owns which class, [clients, classes]."""
        owned = np.zeros(shape, dtype=np.bool_)
        clients = np.arange(shape[0])
        owned[clients, clients % shape[1]] = True
        free = owned.sum(0) == 0
        for row in owned:
            order = generator.permutation(np.flatnonzero(~row))
            order = order[np.argsort(~free[order], kind="stable")]  # those nobody owns yet come first
            row[order[: self.k - 1]] = True
            free &= ~row
        return owned

    def _check(self, num_clients: int, num_classes: int) -> None:
        if self.k > num_classes:
            raise ValueError(f"labels:{self.k} needs {self.k} classes per client; there are {num_classes}")
        if num_clients * self.k < num_classes:
            clients, k = -(-num_classes // self.k), -(-num_classes // num_clients)
            raise ValueError(
                f"labels:{self.k} over {num_clients} clients covers {num_clients * self.k} of {num_classes} "
                f"classes; use at least {clients} clients, or k={k}"
            )

    def _check_sizes(self, pieces: Ints, sizes: Ints) -> None:
        empty = np.flatnonzero(pieces.sum(1) == 0)
        if len(empty):
            raise ValueError(
                f"labels:{self.k} over {len(pieces)} clients leaves client {empty[0]} without a sample: the "
                f"smallest of {len(sizes)} classes has only {sizes.min()}; use fewer clients or a larger k"
            )
