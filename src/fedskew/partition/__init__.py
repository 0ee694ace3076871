"""Partitions: each maps labels to one sorted vector of sample indices per client."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from fedskew.partition.by_chance import Iid as iid
from fedskew.partition.by_dirichlet import Dirichlet as dirichlet
from fedskew.partition.by_file import Replay as replay
from fedskew.partition.by_file import export, read_split
from fedskew.partition.by_labels import Labels as labels
from fedskew.partition.by_shards import Shards as shards
from fedskew.partition.cards import card, partition_hash, skew_indices
from fedskew.partition.checked import checked_split

Partition = Callable[[Tensor, int, np.random.Generator], list[Tensor]]
"""(labels, num_clients, generator) -> int64 indices into labels, ascending, one tensor per client."""

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "shards": shards,
    "labels": labels,
    "dirichlet": dirichlet,
    "replay": replay,
}

LETTERS = {"Q": "shards", "D": "dirichlet"}
"""What the FedLC paper calls partitions: Q(2) is shards:2, D(0.1) is dirichlet:0.1."""

__all__ = [
    "LETTERS",
    "PARTITIONS",
    "Partition",
    "card",
    "checked_split",
    "dirichlet",
    "export",
    "iid",
    "labels",
    "partition_hash",
    "read_split",
    "replay",
    "shards",
    "skew_indices",
]
