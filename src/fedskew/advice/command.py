"""The `fedskew compare` command that tries the advice."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.advice.findings import Advice
from fedskew.advice.kinds import UNKNOWN, usual_model
from fedskew.core.spec import name_in
from fedskew.data import resolve_dataset, usual_for
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.verdict import BASELINE

SEEDS = 3
PLACE = "npz:DATA.npz"
"""A placeholder for the user's own data; docs/data.md describes the file."""
SPLIT = "replay:SPLIT.json"
"""A placeholder for the split of data without their own clients."""
SMALLEST_BATCH = 16
"""The batch size is not lowered below this for the sake of one small client."""
START: Mapping[str, Any] = {"rounds": 50, "batch_size": 32, "lr": 0.1}
"""Training for data of unknown kind, with which FedAvg learns on the data that ship with the package. With the
defaults of a run it would take hundreds of rounds."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr", "momentum")
_MORE = ("optimizer", "weight_decay", "augment", "weighting", "lr_schedule", "grad_clip", "dropout_rate")
_OWN = ("model", "clients_per_round", "validation")
"""Taken only from the user's own runs."""


def source(path: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """Where counts came from, if known: the run next to the file, or the card's data set, partition and seed."""
    beside = Folder(path.parent)
    with suppress(StoreError):
        if path.name == "partition.json" and beside.exists():
            return beside.run()
    return {name: card[name] for name in ("dataset", "partition", "seed") if card.get(name) is not None}


@dataclass(frozen=True)
class Suggestion:
    """The words of a command, and what to know before using it."""

    words: list[str]
    notes: list[str]


def try_command(advice: Advice, origin: Mapping[str, Any], dataset: str | None) -> Suggestion | None:
    """None if there is no method to compare."""
    if not advice.methods:
        return None
    where = _where(origin, dataset)
    trained, own, seeds = _trained(advice, origin if where is origin else {})
    bare, rest = ([name for name in (BASELINE, *advice.tried) if (":" in name) is long] for long in (False, True))
    named = {name: where[name] for name in ("dataset", "partition", "seed") if where.get(name) is not None}
    named |= {"seed": min(seeds)} if seeds else {}
    named |= {"clients": advice.clients, **_training(advice, trained, own=own), "seeds": max(SEEDS, len(seeds) + 2)}
    options = [*named.items(), *(("algorithm", name) for name in (",".join(bare), *rest))]
    texts = [(name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in options]
    words = ["fedskew", "compare", *(word for name, text in texts for word in (f"--{name.replace('_', '-')}", text))]
    notes = [f"where {line}" for line in _places(words)]
    if trained is START:
        notes.append("rounds, batch size and lr are only a start: `fedskew tune` chooses lr on held-out examples")
    return Suggestion(words, notes)


def _where(origin: Mapping[str, Any], dataset: str | None) -> Mapping[str, Any]:
    """The data set and partition of the command: where the counts came from, or the clients of the user's data set."""
    known = origin.get("dataset")
    if known and (dataset is None or resolve_dataset(dataset).text == known):
        return origin
    resolve_dataset(named := dataset or PLACE)
    usual = usual_for(named)
    without = usual is not None and usual.partition != "natural" and name_in(named) != "npz"
    return {"dataset": named, "partition": SPLIT if without else "natural"}


def _trained(advice: Advice, origin: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, list[int]]:
    """How to train, whether the user has trained this way, and with which seeds: as in the user's runs, unless those of
    others recommend the method; in the run the counts came from, in the evidence for what is recommended, in the first
    setting on data of the same kind, or as `START` says."""
    best = [advice.gain(row)[0] for row in advice.chosen[:1] if advice.do in ("use", "depends")]
    items = [*best, *(item for item in advice.evidence if item.own)]
    if items and items[0].own:
        longer = {} if advice.own_counts else {"rounds": START["rounds"]}
        return {**items[0].setting, **longer}, True, items[0].base.seeds
    if origin.get("rounds"):
        return origin, True, []
    like = [*best, *(item for item in advice.evidence if item.kind == advice.kind != UNKNOWN)]
    return like[0].setting if like else START, False, []


def _training(advice: Advice, trained: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    """Fields of a run for `compare`, which has its own defaults."""
    usual = {name: field.default for name, field in Run.model_fields.items()} | {"clients_per_round": advice.clients}
    usual["model"] = usual_model(str(trained.get("dataset")))
    wanted = {"batch_size": usual["batch_size"], **trained}
    wanted["batch_size"] = wanted["batch_size"] if own else batch_size(wanted["batch_size"], advice.sizes[0])
    more = [name for name in (*_MORE, *(_OWN if own else ())) if wanted.get(name, usual[name]) != usual[name]]
    return {name: wanted[name] for name in (*_TRAINING, *more) if name in wanted}


def batch_size(published: int, smallest: int) -> int:
    """The published one, or the largest power of two that the smallest client can fill."""
    return published if smallest >= published else min(published, max(SMALLEST_BATCH, 2 ** (smallest.bit_length() - 1)))


def _places(words: Sequence[str]) -> list[str]:
    """What the files must hold that the user has to make for the command."""
    arrays = [word for word in words if word.startswith("npz:") and "natural" in words]
    files = [resolve_dataset(word).arguments["path"] for word in arrays]
    said = [f"{file} holds x_train, y_train, x_test, y_test and client, the owner of each example" for file in files]
    if SPLIT in words:
        said.append("SPLIT.json is a JSON list with a list of training examples, by their index, for each client")
    return said
