"""The `fedskew compare` command that tries advice out."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedskew.algorithms import ALGORITHMS
from fedskew.experiments.evidence import BASE
from fedskew.experiments.store import Folder, StoreError

SEEDS = 3
MOST = 3
"""Methods beside FedAvg that a command names."""
PLACE = "npz:DATA.npz"
"""Stands for the user's own data; docs/data.md says what the file holds."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr", "momentum")


def source(path: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """The data set, partition and seed that counts came from, where the file or the run beside it says so."""
    known, beside = card, Folder(path.parent)
    with suppress(StoreError):
        known = beside.run() if path.name == "partition.json" and beside.exists() else card
    return {name: known[name] for name in ("dataset", "partition", "seed") if known.get(name) is not None}


def try_command(advice: Mapping[str, Any], origin: Mapping[str, Any], dataset: str | None) -> list[str] | None:
    """The command's words, with the training of the setting that speaks most for the first method; None for one client
    or one class, where there is nothing to compare."""
    if min(advice["clients"], advice["classes_held"]) < 2:
        return None
    where = {"dataset": dataset or PLACE, "partition": "natural"} if dataset or "dataset" not in origin else origin
    words = ["fedskew", "compare"]
    for name in ("dataset", "partition", "seed"):
        words += [f"--{name}", str(where[name])] if name in where else []
    words += ["--clients", str(advice["clients"]), *_training(advice), "--seeds", str(SEEDS)]
    bare = [name for name in methods(advice) if ":" not in name]
    rest = [name for name in methods(advice) if ":" in name]
    return words + [word for name in (",".join(bare), *rest) for word in ("--algorithm", name)]


def methods(advice: Mapping[str, Any]) -> list[str]:
    """FedAvg and what gained; the best of the others where nothing did; everything where nothing is known."""
    rows = _chosen(advice)
    return [BASE, *(row["algorithm"] for row in rows)] if rows else list(ALGORITHMS)


def _chosen(advice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows that the command is about: one per method, none that was below FedAvg more often than above."""
    rows: Sequence[Mapping[str, Any]] = advice["methods"]
    gained = [row for row in rows if row["verdict"] != "no gain" and _balance(row["method"], rows) >= 0]
    first = {row["method"]: row for row in reversed(gained)}
    chosen = [row for row in gained if first[row["method"]] is row]
    return (chosen or list(rows[:1]))[:MOST]


def _balance(method: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """How much more often a method was above FedAvg than below, on all data sets."""
    return sum(len(row["above"]) - len(row["below"]) for row in rows if row["method"] == method)


def untried(advice: Mapping[str, Any]) -> list[str]:
    """Methods that this evidence has nothing about."""
    return [name for name in ALGORITHMS if name not in {BASE, *(row["method"] for row in advice["methods"])}]


def shown(words: Sequence[str]) -> str:
    return shlex.join(words)


def _training(advice: Mapping[str, Any]) -> list[str]:
    rows = _chosen(advice)
    best = rows[0]["best"] if rows else None
    setting: dict[str, Any] = next((e["setting"] for e in advice["evidence"] if e["number"] == best), {})
    chosen = {name.replace("_", "-"): f"{setting[name]:g}" for name in _TRAINING if name in setting}
    return [word for name, value in chosen.items() for word in (f"--{name}", value)]
