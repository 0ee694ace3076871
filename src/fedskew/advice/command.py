"""The `fedskew compare` command that tries advice out."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedskew.advice.evidence import BASE
from fedskew.algorithms import ALGORITHMS
from fedskew.core import spec
from fedskew.data import USUAL, resolve_dataset
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.verdict import NOT_DECIDED

SEEDS = 3
MOST = 3
"""Methods beside FedAvg that a command names."""
PLACE = "npz:DATA.npz"
"""Stands for the user's own data; docs/data.md says what the file holds."""
SPLIT = "replay:SPLIT.json"
"""Stands for who holds what of data that have no clients of their own."""
SMALLEST_BATCH = 16
"""The batch size is not lowered below this for the sake of one small client."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr", "momentum")
_NOT_CARRIED = (
    "optimizer", "weight_decay", "augment", "weighting", "lr_schedule", "grad_clip", "dropout_rate", "validation",
    "precision",
)  # fmt: skip


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
    where = _where(origin, dataset)
    words = ["fedskew", "compare"]
    for name in ("dataset", "partition", "seed"):
        words += [f"--{name}", str(where[name])] if name in where else []
    words += ["--clients", str(advice["clients"]), *_training(advice), "--seeds", str(SEEDS)]
    bare = [name for name in methods(advice) if ":" not in name]
    rest = [name for name in methods(advice) if ":" in name]
    return words + [word for name in (",".join(bare), *rest) for word in ("--algorithm", name)]


def _where(origin: Mapping[str, Any], dataset: str | None) -> Mapping[str, Any]:
    """The data set and partition of the command: where the counts came from, or clients as the user's data set has."""
    known = origin.get("dataset")
    if known and (dataset is None or resolve_dataset(dataset).text == known):
        return origin
    resolve_dataset(named := dataset or PLACE)
    usual = USUAL.get(named.partition(":")[0])
    without = usual is not None and usual.partition != "natural" and not named.startswith("npz:")
    return {"dataset": named, "partition": SPLIT if without else "natural"}


def places(words: Sequence[str]) -> list[str]:
    """What the files of the command hold that are the user's to make."""
    arrays = [word for word in words if word.startswith("npz:") and "natural" in words]
    files = [resolve_dataset(word).arguments["path"] for word in arrays]
    said = [f"{file} holds x_train, y_train, x_test, y_test and client, the owner of each example" for file in files]
    if SPLIT in words:
        said.append("SPLIT.json is a JSON list with a list of training examples, by their index, for each client")
    return said


def methods(advice: Mapping[str, Any]) -> list[str]:
    """FedAvg and what is worth a try; everything where nothing is known."""
    return [BASE, *(row["algorithm"] for row in _chosen(advice))] if advice["methods"] else list(ALGORITHMS)


def _chosen(advice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows that the command is about, one per method: first those above FedAvg somewhere, then those that one seed puts
    ahead of it; where there is neither, the first of the rest. A method that was below FedAvg or diverged more often
    than it was above comes last."""
    rows: Sequence[Mapping[str, Any]] = advice["methods"]
    fine = [row for row in rows if _balance(row["method"], rows) >= 0]
    gained = [row for row in fine if row["above"]]
    open_ = [row for row in fine if row["verdict"] == NOT_DECIDED and (row["mean"] or 0.0) > 0]
    first = {row["method"]: row for row in reversed([*gained, *open_])}
    chosen = [row for row in (*gained, *open_) if first[row["method"]] is row]
    rest = [row for row in (*fine, *rows) if not row["above"]]
    return (chosen or rest[:1])[:MOST]


def _balance(method: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """How much more often a method was above FedAvg than below it or diverged, on all data sets."""
    return sum(len(row["above"]) - len({*row["below"], *row["diverged"]}) for row in rows if row["method"] == method)


def untried(advice: Mapping[str, Any]) -> list[str]:
    """Methods that this evidence has nothing about."""
    return [name for name in ALGORITHMS if name not in {BASE, *(row["method"] for row in advice["methods"])}]


def shown(words: Sequence[str]) -> str:
    return shlex.join(words)


def batch_size(published: int, smallest: int) -> int:
    """The published one, or the largest power of two that the smallest client can fill."""
    return published if smallest >= published else min(published, max(SMALLEST_BATCH, 2 ** (smallest.bit_length() - 1)))


def notes(advice: Mapping[str, Any]) -> list[str]:
    """Where the command's training comes from, and in what it is not the same."""
    setting = _setting(advice)
    if not setting:
        return []
    left = ", ".join(f"{name} {spec.show(value)}" for name, value in _left_out(setting).items())
    said = [f"The command trains as [{_chosen(advice)[0]['best']}] did, but does not carry over its {left}."]
    used, smallest = batch_size(setting["batch_size"], advice["sizes"][0]), advice["sizes"][0]
    if used != setting["batch_size"]:
        said.append(
            f"Its batch size is {used}, not {setting['batch_size']}: the smallest client has {smallest} examples."
        )
    return said


def _left_out(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The setting's model, and what else `compare` would do otherwise if it is not told."""
    from fedskew.runs.run import Run

    usual = {name: Run.model_fields[name].default for name in _NOT_CARRIED}
    usual["clients_per_round"] = setting["clients"]
    odd = {name: setting[name] for name, value in usual.items() if setting[name] != value}
    return {"model": setting["model"], **odd}


def _setting(advice: Mapping[str, Any]) -> dict[str, Any]:
    """The one that the command takes its training from; empty where nothing is known."""
    rows = _chosen(advice)
    best = rows[0]["best"] if rows else None
    return next((item["setting"] for item in advice["evidence"] if item["number"] == best), {})


def _training(advice: Mapping[str, Any]) -> list[str]:
    setting = _setting(advice)
    if setting:
        setting = {**setting, "batch_size": batch_size(setting["batch_size"], advice["sizes"][0])}
    chosen = {name.replace("_", "-"): f"{setting[name]:g}" for name in _TRAINING if name in setting}
    return [word for name, value in chosen.items() for word in (f"--{name}", value)]
