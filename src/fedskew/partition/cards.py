"""The card of a partition: its content hash, label counts and how skewed they are."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.partition.owners import Ints, whole


def partition_hash(indices: Sequence[Tensor]) -> str:
    """sha256 over the number of clients, their sizes and their indices, all as little-endian int64."""
    digest = hashlib.sha256(np.array([len(indices), *map(len, indices)], dtype="<i8").tobytes())
    for part in indices:
        digest.update(part.cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def counts(indices: Sequence[Tensor], labels: Tensor, num_classes: int) -> Ints:
    """Samples of each class at each client, [clients, classes]."""
    whole("the number of classes", num_classes)
    if not indices:
        raise ValueError("the partition has no clients; at least one is needed")
    samples = torch.cat(list(indices)).cpu()
    if len(samples) and (int(samples.min()) < 0 or int(samples.max()) >= len(labels)):
        raise ValueError(f"sample indices {samples.min()}..{samples.max()}; allowed: 0..{len(labels) - 1}")
    held = labels.cpu()[samples].numpy().astype(np.int64)
    if len(held) and (held.min() < 0 or held.max() >= num_classes):
        raise ValueError(f"labels {held.min()}..{held.max()}; allowed: 0..{num_classes - 1}")
    client = np.repeat(np.arange(len(indices), dtype=np.int64), [len(part) for part in indices])
    cells = np.bincount(client * num_classes + held, minlength=len(indices) * num_classes)
    return cells.reshape(len(indices), num_classes).astype(np.int64)


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


def card(name: str, indices: Sequence[Tensor], labels: Tensor, num_classes: int) -> dict[str, Any]:
    """A partition in numbers, ready for JSON: all but the sample indices.

    `partition` is the resolved spec; `missing` lists per client all classes below num_classes with count 0.
    """
    table = counts(indices, labels, num_classes)
    return {
        "partition": name,
        "hash": partition_hash(indices),
        "clients": len(table),
        "classes": num_classes,
        "samples": int(table.sum()),
        "sizes": table.sum(1).tolist(),
        "counts": table.tolist(),
        "missing": [np.flatnonzero(row == 0).tolist() for row in table],
        "skew": skew_indices(table),
    }
