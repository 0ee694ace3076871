"""What published runs say about methods, by how skewed the labels were: the table that `fedskew advise` reads.

    python -m fedskew.advice.evidence [FOLDER]      writes evidence.json from FOLDER/*.jsonl (results/paper)

A setting is everything about a run but its method and its seed; it is evidence when FedAvg and another method ran in
it. How skewed a partition is comes from its label counts; the skew of partitions that the table knows already is kept,
others are split again, which needs the data set's labels ($FEDSKEW_DATA).
"""

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.runs.results import Result, Results, question

FILE = Path(__file__).with_name("evidence.json")
BASE = "fedavg"
_SHOWN = ("dataset", "partition", "model")
_PLAIN = (
    "clients", "clients_per_round", "rounds", "local_epochs", "batch_size", "optimizer", "lr", "momentum",
    "weight_decay", "augment", "weighting", "lr_schedule", "grad_clip", "dropout_rate", "validation", "precision",
)  # fmt: skip


def load() -> dict[str, Any]:
    """The table that comes with the package."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


def build(results: Iterable[Result], known: Mapping[str, Any]) -> dict[str, Any]:
    """The table: settings with what each method reached in them, and the skew of every partition they used."""
    groups = [list(group) for _, group in groupby(sorted(results, key=_key), _setting)]
    settings = [_described(group) for group in groups]
    kept = [setting for setting in settings if len(setting["methods"]) > 1 and BASE in setting["methods"]]
    names = {name for setting in kept for method in setting["methods"].values() for name in method["partitions"]}
    example = {partition_name(result): result for group in groups for result in group}
    partitions = {name: known.get(name) or _measure(example[name]) for name in sorted(names)}
    return {"partitions": partitions, "settings": kept}


def partition_name(result: Result) -> str:
    """A split of labels. Its hash covers indices alone, and data sets or their seeds can share it: Synthetic does."""
    return f"{_short(result)['dataset']} seed {result.run['seed']} {result.summary['partition_hash'][:16]}"


def text(table: Mapping[str, Any]) -> str:
    """The table as it is stored: a partition or a setting a line."""
    partitions = ",\n".join(f" {json.dumps(name)}: {json.dumps(p)}" for name, p in table["partitions"].items())
    settings = ",\n".join(f" {json.dumps(setting)}" for setting in table["settings"])
    return f'{{"partitions": {{\n{partitions}\n}},\n"settings": [\n{settings}\n]}}\n'


def _setting(result: Result) -> tuple[str, int, str]:
    asked = question({**result.run, "algorithm": ""})
    return asked, result.rounds, str(result.run["precision"])


def _key(result: Result) -> tuple[tuple[str, int, str], str, int]:
    return _setting(result), str(result.run["algorithm"]), int(result.run["seed"])


def _described(group: list[Result]) -> dict[str, Any]:
    run, short = group[0].run, _short(group[0])
    methods = {_short(result)["algorithm"]: _method(result, group) for result in group}
    shown = {name: short[name] for name in _SHOWN}
    plain = {name: run.get(name, 0.0) for name in _PLAIN}
    return {**shown, **plain, "full_rounds": _full_rounds(run), "device": group[0].where, "methods": methods}


def _short(result: Result) -> dict[str, str]:
    """Specs as people write them with the defaults of today, which a line's own may not be."""
    from fedskew.runs.run import Run

    return Run(**result.run).short


def _method(one: Result, group: list[Result]) -> dict[str, Any]:
    """A method over its seeds, in their order. `accuracy` is the mean of the last ten rounds, `last` that of the last
    one; both are null where the run diverged."""
    same = [result for result in group if result.run["algorithm"] == one.run["algorithm"]]

    def measure(name: str) -> list[float | None]:
        return [None if r.summary["diverged"] else round(r.summary[name], 6) for r in same]

    return {
        "seeds": [r.run["seed"] for r in same],
        "accuracy": measure("accuracy_last10"),
        "last": measure("accuracy"),
        "held_out": [r.summary["validation_accuracy"] for r in same],
        "runs": [r.hash for r in same],
        "partitions": [partition_name(r) for r in same],
    }


def _full_rounds(run: Mapping[str, Any]) -> int | None:
    """How many rounds the paper gives this federation, if one of its tables has it, however sizes are balanced."""
    from fedskew.paper import TABLES
    from fedskew.paper.choice import Choice

    def where(run: Mapping[str, Any]) -> tuple[Any, ...]:
        return run["dataset"], str(run["partition"]).partition(",")[0], run["clients"]

    cells = [(table, cell) for table in TABLES.values() for cell in table.cells]
    found = [t.full_rounds(cell) for t, cell in cells if where(t.run(cell, BASE, Choice()).model_dump()) == where(run)]
    return max(found, default=None)


def _measure(result: Result) -> dict[str, Any]:
    """The skew of a run's partition, split again from the data."""
    from fedskew.runs.run import Run
    from fedskew.simulation.plan import build_federation, describe_partition

    run = Run(**{**result.run, "device": "cpu", "data_dir": None})
    card = describe_partition(run, build_federation(run))
    if card["hash"] != result.summary["partition_hash"]:
        raise ValueError(
            f"run {result.hash} had partition {result.summary['partition_hash']}, here it is {card['hash']}"
        )
    skew = {name: round(value, 6) for name, value in card["skew"].items()}
    classes = int((np.array(card["counts"]).sum(0) > 0).sum())
    return {"clients": card["clients"], "classes": classes, "samples": card["samples"], "skew": skew}


def main(folder: Path) -> None:

    known = json.loads(FILE.read_text())["partitions"] if FILE.exists() else {}
    try:
        results = Results(None, folder)
        for problem in results.problems:
            print(f"left out: {problem}", file=sys.stderr)
        table = build(results, known)
    except FileNotFoundError as error:
        sys.exit(f"evidence.json is left as it was, a new partition needs its data: {error}")
    FILE.write_text(text(table))
    print(f"written: {FILE.name}, {len(table['settings'])} settings on {len(table['partitions'])} partitions")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/paper"))
