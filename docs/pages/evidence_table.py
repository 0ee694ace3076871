"""The table that `fedskew advise` reads, from published results: `make evidence`.

    python -m docs.pages.evidence_table [PATH ...]      from files of lines, and folders of them (`SOURCES`)

A partition's skew is computed from its label counts. The table keeps the skew of partitions that it knows; others are
split again, which needs the data set's labels ($FEDSKEW_DATA).
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice import evidence
from fedskew.advice.evidence import partition_name, settings
from fedskew.runs.results import Result, merged, read_lines
from fedskew.runs.run import Run
from fedskew.runs.verdict import BASELINE
from fedskew.runs.versions import result_version
from fedskew.simulation.plan import build_federation, describe_partition

FILE = Path(evidence.__file__).with_name("evidence.json")
EQUAL = 0.001
"""Below this size Gini clients have as many examples as each other: FedNova is FedAvg but for rounding, no evidence."""
SOURCES = (Path("results/paper"), Path("results/digits"), Path("results/travel/test.jsonl"))
"""What was measured on test sets, without the files of tries on held-out examples."""


def published(paths: Iterable[Path], problems: list[str] | None = None) -> list[Result]:
    """The lines of these files and folders that this version of the code would give."""
    files = [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    found = merged(line for file in files for line in read_lines(file, problems))
    return [line for line in found if line.result_version == result_version(line.run["algorithm"])]


def build(results: Iterable[Result], known: Mapping[str, Any]) -> dict[str, Any]:
    """The table: settings with what each method reached in them, and the skew of every partition they used."""
    found = list(results)
    kept = settings(found)
    names = {name for setting in kept for method in setting["methods"].values() for name in method["partitions"]}
    example = {partition_name(result): result for result in found}
    partitions = {name: known.get(name) or _measure(example[name]) for name in sorted(names)}
    for setting in kept:
        if all(partitions[name]["skew"]["size_gini"] < EQUAL for name in setting["methods"][BASELINE]["partitions"]):
            setting["methods"].pop("fednova", None)
    return {"partitions": partitions, "settings": [setting for setting in kept if len(setting["methods"]) > 1]}


def text(table: Mapping[str, Any]) -> str:
    """The table as stored: one line per partition or setting."""
    partitions = ",\n".join(f" {json.dumps(name)}: {json.dumps(p)}" for name, p in table["partitions"].items())
    settings = ",\n".join(f" {json.dumps(setting)}" for setting in table["settings"])
    return f'{{"partitions": {{\n{partitions}\n}},\n"settings": [\n{settings}\n]}}\n'


def _measure(result: Result) -> dict[str, Any]:
    """The skew of a run's partition, split again from the data."""
    run = Run(**{**result.run, "device": "cpu", "data_dir": None})
    card = describe_partition(run, build_federation(run))
    if card["hash"] != result.summary["partition_hash"]:
        raise ValueError(
            f"run {result.hash} had partition {result.summary['partition_hash']}; splitting again gives {card['hash']}"
        )
    skew = {name: round(value, 6) for name, value in card["skew"].items()}
    classes = int((np.array(card["counts"]).sum(0) > 0).sum())
    return {"clients": card["clients"], "classes": classes, "samples": card["samples"], "skew": skew}


def main(paths: Iterable[Path]) -> None:
    known = json.loads(FILE.read_text())["partitions"] if FILE.exists() else {}
    problems = list[str]()
    try:
        table = build(published(paths, problems), known)
    except FileNotFoundError as error:
        sys.exit(f"evidence.json is unchanged: a file is missing, of results or of a new partition's data: {error}")
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    FILE.write_text(text(table))
    print(f"written: {FILE.name}, {len(table['settings'])} settings on {len(table['partitions'])} partitions")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]] or SOURCES)
