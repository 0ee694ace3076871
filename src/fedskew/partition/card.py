"""What a partition is: its content hash, label counts, how skewed they are, and a file to replay it from."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.partition.owners import Ints, whole

FORMAT = 1


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

    mean_total_variation  mean over clients of 1/2 sum_c |p_kc - p_c|; 0 when all clients are alike
    effective_classes     mean over clients of exp(-sum_c p_kc ln p_kc); between 1 and the number of classes
    missing_share         share of n_kc that are 0, over the classes that some client holds
    size_gini             sum_jk |n_j - n_k| / (2 m n) over m clients; 0 when all have the same size
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


def export(path: str | Path, name: str, indices: Sequence[Tensor]) -> None:
    """Write a partition, sample indices and all, to a JSON file; a reader sees the whole file or none."""
    path = Path(path)
    document = {
        "format": FORMAT,
        "name": name,
        "hash": partition_hash(indices),
        "clients": [part.tolist() for part in indices],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(json.dumps(document), encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def replay(path: str | Path, num_samples: int) -> tuple[str, list[Tensor]]:
    """The name and index lists that `export` wrote, checked against their hash and the number of samples."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} could not be read as a partition: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path} is not a partition of format {FORMAT}; its format is {found!r}")
    name, clients = document.get("name"), document.get("clients")
    if not isinstance(name, str) or not isinstance(clients, list) or not clients:
        raise ValueError(f"{path} lacks a name or a list of clients; write it with export")
    for client, part in enumerate(clients):
        _check(f"{path}: client {client}", part, num_samples)
    indices = [torch.tensor(part, dtype=torch.int64) for part in clients]
    if len({index for part in clients for index in part}) < sum(map(len, clients)):
        raise ValueError(f"{path} gives a sample twice; each sample belongs to one client at most")
    if (actual := partition_hash(indices)) != document.get("hash"):
        raise ValueError(f"{path} was changed: its hash is {actual} and it says {document.get('hash')}")
    return name, indices


def _check(where: str, part: Any, num_samples: int) -> None:
    if not isinstance(part, list) or not all(type(index) is int for index in part):
        raise ValueError(f"{where} is not a list of sample indices")
    if not part:
        raise ValueError(f"{where} has no sample; every client needs at least one")
    if min(part) < 0 or max(part) >= num_samples:
        raise ValueError(f"{where} has indices {min(part)}..{max(part)}; allowed: 0..{num_samples - 1}")
