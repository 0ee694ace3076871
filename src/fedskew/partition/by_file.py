"""A partition from a file: one that `export` wrote, or an index file of another tool.

These forms of other tools are read: a JSON list with one list of example indices per client; a JSON object of such
lists, clients in the order of their numbers or names; a text file with one line per example, its client's number.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedskew.core.files import parse_json, read_text, regular, sha256_of, write_whole
from fedskew.partition.cards import partition_hash
from fedskew.partition.checked import checked_split
from fedskew.partition.owners import collect

FORMAT = 1
_DIGITS = 18
"""The most digits of a client's number, so that it fits 64 bits."""


@dataclass(frozen=True)
class Replay:
    """The split in a file, whatever the seed."""

    path: str

    def __call__(self, labels: Tensor, num_clients: int, generator: np.random.Generator) -> list[Tensor]:
        return read_split(self.path, len(labels), num_clients)[1]

    def fingerprint(self) -> str:
        """sha256 of the file: the path alone does not identify its content."""
        return sha256_of(regular(self.path))


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
    write_whole(path, json.dumps(document).encode())


def read_split(path: str | Path, num_samples: int, num_clients: int | None = None) -> tuple[str, list[Tensor]]:
    """The name and index lists in a file, checked."""
    name, clients, stated = _content(Path(path), num_samples)
    indices = checked_split(str(path), clients, num_samples, num_clients)
    if stated is not None and (actual := partition_hash(indices)) != stated:
        raise ValueError(f"{path} was changed: its hash is {actual}, but it states {stated}")
    return name, indices


def _content(path: Path, num_samples: int) -> tuple[str, list[Any], str | None]:
    """Name, lists per client, and the hash stated in the file."""
    text = read_text(path)
    if not text.lstrip().startswith(("[", "{")):
        return path.name, _owners(path, text, num_samples), None
    document = parse_json(path, text)
    if isinstance(document, dict) and "format" in document:
        return _exported(path, document)
    if isinstance(document, dict) and document and all(isinstance(part, list) for part in document.values()):
        return path.name, [document[name] for name in sorted(document, key=_in_order)], None
    if isinstance(document, list) and document and all(isinstance(part, list) for part in document):
        return path.name, document, None
    raise ValueError(f"{path} is not a partition: neither an exported one, nor a list of indices per client")


def _in_order(name: str) -> tuple[bool, int, str]:
    """Numbers first, by their value; then names."""
    number = name.isdecimal() and len(name) <= _DIGITS
    return not number, int(name) if number else 0, name


def _exported(path: Path, document: dict[str, Any]) -> tuple[str, list[Any], str | None]:
    if document["format"] != FORMAT:
        raise ValueError(f"{path} is not a partition of format {FORMAT}; its format is {document['format']!r}")
    name, clients = document.get("name"), document.get("clients")
    if not isinstance(name, str) or not isinstance(clients, list) or not clients:
        raise ValueError(f"{path} lacks a name or a list of clients; write it with export")
    return name, clients, str(document.get("hash"))


def _owners(path: Path, text: str, num_samples: int) -> list[list[int]]:
    """Index lists from a client's number per line."""
    lines = text.split()
    wrong = next((line for line in lines if not line.isdecimal() or len(line) > _DIGITS), None)
    if wrong is not None:
        raise ValueError(f"{path} could not be read as a partition: {wrong[:20]!r} is not a client number")
    if len(lines) != num_samples:
        raise ValueError(f"{path} has {len(lines)} lines for {num_samples} samples; one client per sample is needed")
    owner = np.array([int(line) for line in lines])
    if owner.max() >= num_samples:
        raise ValueError(f"{path} has a client {owner.max()}; clients are numbered from 0")
    return [part.tolist() for part in collect(owner, int(owner.max()) + 1)]
