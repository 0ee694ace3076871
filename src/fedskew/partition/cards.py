"""The card of a partition: its content hash, label counts and how skewed they are."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedskew.partition.owners import Ints


def partition_hash(indices: Sequence[Tensor]) -> str:
    """sha256 over the number of clients, their sizes and their indices, all as little-endian int64."""
    digest = hashlib.sha256(np.array([len(indices), *map(len, indices)], dtype="<i8").tobytes())
    for part in indices:
        digest.update(part.cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def skew_indices(counts: Ints) -> dict[str, float]:
    """How skewed label counts n_kc [clients, classes] are; p_kc = n_kc / n_k, p_c = n_c / n.

    mean_total_variation  mean over clients of 1/2 sum_c |p_kc - p_c|; 0 if all clients are alike
    effective_classes     mean over clients of exp(-sum_c p_kc ln p_kc); between 1 and the number of classes
    missing_share         share of n_kc that are 0, over the classes that some client holds
    size_gini             sum_jk |n_j - n_k| / (2 m n) over m clients; 0 if all have the same size
    """
    sizes = counts.sum(1)
    if not sizes.all():
        raise ValueError(f"client {int(np.argmin(sizes))} has no sample; every client needs at least one")
    local, everywhere = counts / sizes[:, None], counts.sum(0) / sizes.sum()
    logs = np.log(local, out=np.zeros_like(local), where=local > 0)
    clients = len(sizes)
    ranks = 2 * np.arange(clients) - clients + 1
    return {
        "mean_total_variation": float(np.abs(local - everywhere).sum(1).mean() / 2),
        "effective_classes": float(np.exp(-(local * logs).sum(1)).mean()),
        "missing_share": float((counts[:, everywhere > 0] == 0).mean()),
        "size_gini": float((ranks * np.sort(sizes)).sum() / (clients * sizes.sum())),
    }


def card(name: str, indices: Sequence[Tensor], table: Ints) -> dict[str, Any]:
    """A partition in numbers, ready for JSON: all but the sample indices. `table` has the label counts of each client.

    `partition` is the resolved spec; `missing` lists per client all classes with count 0.
    """
    return {
        "partition": name,
        "hash": partition_hash(indices),
        "clients": len(table),
        "classes": table.shape[1],
        "samples": int(table.sum()),
        "sizes": table.sum(1).tolist(),
        "counts": table.tolist(),
        "missing": [np.flatnonzero(row == 0).tolist() for row in table],
        "skew": skew_indices(table),
    }
