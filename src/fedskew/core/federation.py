"""The clients: who holds which training examples, and in which order a cohort uses them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.core import rng
from fedskew.core.dataset import Dataset

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Federation:
    """A data set and its split: client k holds the examples `order[offsets[k]:offsets[k + 1]]`.

    Label counts are computed from the client's own training examples when its loss needs them and go nowhere else.
    `held_out` are training examples that no client holds, for choosing settings.
    """

    dataset: Dataset
    order: Ints
    offsets: Ints
    labels: Ints
    held_out: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def split(cls, dataset: Dataset, indices: Sequence[Tensor], held_out: Ints | None = None) -> "Federation":
        """From the indices of each client."""
        sizes = np.array([len(part) for part in indices], dtype=np.int64)
        if (sizes == 0).any():
            raise ValueError(f"client {int(np.argmin(sizes))} has no training example; every client needs one")
        order = torch.cat(list(indices)).cpu().numpy()
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        held_out = np.zeros(0, np.int64) if held_out is None else held_out
        return cls(dataset, order, offsets, dataset.y_train.cpu().numpy(), held_out)

    @classmethod
    def natural(cls, dataset: Dataset, held_out: Ints | None = None) -> "Federation":
        """The data set's own clients, without the examples that are held out."""
        if dataset.client_train is None:
            raise ValueError(
                f"{dataset.name} does not say which client has which example, as partition natural needs; choose a "
                "partition such as dirichlet:0.1"
            )
        owner = dataset.client_train.cpu().numpy()
        order = np.argsort(owner, kind="stable").astype(np.int64)
        if held_out is not None:
            order = order[~np.isin(order, held_out)]
        sizes = np.bincount(owner[order], minlength=int(owner.max()) + 1)
        return cls.split(dataset, torch.from_numpy(order).split(sizes.tolist()), held_out)

    @classmethod
    def of_one(cls, dataset: Dataset, client: int, clients: int) -> "Federation":
        """A federation as one of its clients sees it: this client holds the whole data set, the others' examples are
        elsewhere."""
        offsets = np.where(np.arange(clients + 1) > client, len(dataset.y_train), 0).astype(np.int64)
        order = np.arange(len(dataset.y_train), dtype=np.int64)
        return cls(dataset, order, offsets, dataset.y_train.cpu().numpy())

    @property
    def digest(self) -> int:
        """A number that identifies the data and their split, to check whether two processes have the same."""
        whole = hashlib.sha256(self.dataset.digest.encode())
        for part in (self.order, self.offsets):
            whole.update(np.ascontiguousarray(part).data)
        return int(whole.hexdigest()[:15], 16)

    @property
    def num_clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def indices(self) -> list[Tensor]:
        """One index tensor per client."""
        return list(torch.from_numpy(self.order).split(np.diff(self.offsets).tolist()))

    def sizes(self, clients: Ints) -> Ints:
        return np.asarray(self.offsets[clients + 1] - self.offsets[clients])

    def positions(self, clients: Ints) -> Ints:
        """The positions of the clients' examples in `order`, client after client."""
        sizes = self.sizes(clients)
        return np.asarray(np.repeat(self.offsets[clients], sizes) + rng.within(sizes))

    def counts(self, clients: Ints) -> Ints:
        """Label counts [K, C] of some clients."""
        classes, sizes = self.dataset.num_classes, self.sizes(clients)
        labels = self.labels[self.order[self.positions(clients)]]
        rows = np.repeat(np.arange(len(clients)), sizes)
        flat = np.bincount(rows * classes + labels, minlength=len(clients) * classes)
        return flat.reshape(len(clients), classes)

    def shuffled(self, clients: Ints, seed: int, round: int, epochs: int) -> Ints:
        """Example indices in the order of use: client after client, epoch after epoch, each freshly shuffled."""
        keys, sizes = self._segments("shuffle", clients, seed, round, epochs)
        starts = np.repeat(np.repeat(self.offsets[clients], epochs), sizes)
        return np.asarray(self.order[starts + rng.permutations(keys, sizes)])

    def draws(self, clients: Ints, seed: int, round: int, epochs: int) -> Ints:
        """A random integer for each use of an example, in the order of `shuffled`."""
        return rng.draws(*self._segments("augment", clients, seed, round, epochs))

    def _segments(self, word: str, clients: Ints, seed: int, round: int, epochs: int) -> tuple[rng.Keys, Ints]:
        """A key and a size for each epoch of each client."""
        epoch = np.tile(np.arange(epochs), len(clients))
        keys = rng.key(seed, word, round, np.repeat(clients, epochs), epoch)
        return keys, np.repeat(self.sizes(clients), epochs)


@dataclass(frozen=True)
class Cohort:
    """The clients of one round of one federation."""

    federation: Federation
    clients: Ints
    states: dict[str, Tensor]
    seed: int
    everyone: Ints | None = None

    @property
    def whole(self) -> Ints:
        """All clients of the round, including those that other ranks train."""
        return self.clients if self.everyone is None else self.everyone

    def weights(self, weighting: str) -> Tensor:
        """The weight of each client of the whole cohort: its number of examples ("samples"), or the same for all
        ("uniform")."""
        return weights_of(self.federation.sizes(self.whole), weighting)


def weights_of(sizes: Ints, weighting: str) -> Tensor:
    """The weights of clients of these sizes."""
    weights = torch.from_numpy(sizes.astype(float))
    return weights if weighting == "samples" else torch.ones_like(weights)
