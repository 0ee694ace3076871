"""Files of a store that are not what was written any more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fedskew import Run, Store
from fedskew.runs.results import Result
from tests.helpers.attacked_run import FIELDS, ROUNDS, do, redone
from tests.helpers.attempts import Tally

FILES = (
    "run.json", "records.jsonl", "sessions.jsonl", "partition.json", "measured.json", "diagnosis.json",
    "checkpoint.safetensors",
)  # fmt: skip
BEGUN, EACH = 2, 20
"""Rounds that are done before the damage, and attempts for each file and kind of damage."""


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """Flipped bits, cut ends and zeroed blocks in every file; what is read or resumed must be the same, or an error."""
    begun, hash = folder / "begun", Run(**FIELDS, rounds=ROUNDS).hash
    tally.call("a run that is begun", lambda: _begin(begun))
    read = tally.call("read", lambda: _read(begun)).value
    shutil.copytree(begun, folder / "whole")
    whole = tally.call("a run that goes on", lambda: redone(folder / "whole")).value
    kinds: dict[str, Callable[[bytes, Random], bytes]] = {"a flipped bit": _flip, "a cut end": _cut, "zeros": _zeros}
    cases = [(kind, name) for kind in kinds for name in FILES for _ in range(EACH)]
    for kind, name in random.sample(cases, len(cases)):
        shutil.rmtree(folder / "run", ignore_errors=True)
        shutil.copytree(begun, folder / "run")
        path = folder / "run" / hash / name
        path.write_bytes(kinds[kind](path.read_bytes(), random))
        tally.count(f"with {kind}")
        case = f"{kind} in {name}"
        for doing, wanted in ((_read, read), (redone, whole)):
            outcome = tally.call(f"{case}, {doing.__name__}", lambda doing=doing: doing(folder / "run"))
            if outcome.code:
                tally.count("errors")
            elif outcome.value != wanted:
                changed = [key for key in wanted if outcome.value.get(key) != wanted[key]]
                tally.silent.append(f"{case}, {doing.__name__}: another {', '.join(changed)}")


def _begin(root: Path) -> None:
    do(root, BEGUN)
    folder = Store(root).folder(Run(**FIELDS, rounds=BEGUN).hash)
    folder.write_measured(BEGUN, {"figure": {"values": [0.25, 0.5]}})
    folder.write_diagnosis({"round": BEGUN, "calibration": {"ece": 0.125}})


def _read(root: Path) -> dict[str, Any]:
    """All that reports, lists and tables read of the run; what is damaged beside it counts as absent and is named."""
    folder = Store(root).folder(Run(**FIELDS, rounds=ROUNDS).hash)
    damaged = folder.damaged_extras()
    extras = {"measured": folder.measured(BEGUN), "diagnosis": folder.diagnosis()}
    known: dict[str, Any] = {"measured": {"figure": {"values": [0.25, 0.5]}}, "diagnosis": None}
    known["diagnosis"] = {"round": BEGUN, "calibration": {"ece": 0.125}}
    for name in extras:
        if any(note.startswith(f"{name}.json is damaged") for note in damaged):
            extras[name] = known[name]
    lines = [json.loads(result.line()) for result in Result.of(folder)]
    results = [{k: v for k, v in line.items() if k not in ("seal", "measured")} for line in lines]
    return {
        "about": folder.about(),
        "records": folder.records(),
        "sessions": folder.sessions(),
        "card": folder.card(),
        "saved": folder.saved(),
        "results": results,
        **extras,
    }


def _flip(content: bytes, random: Random) -> bytes:
    """One bit, and in an eighth of all cases some more."""
    flipped = bytearray(content)
    for _ in range(1 if random.random() < 0.875 else 8):
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _cut(content: bytes, random: Random) -> bytes:
    """Not between two lines: that sessions.jsonl has lost its last line whole is not to be seen."""
    return content[: random.choice([i for i in range(len(content)) if i and content[i - 1 : i] != b"\n"])]


def _zeros(content: bytes, random: Random) -> bytes:
    """As a file system may leave a block that was never written."""
    start = random.randrange(len(content))
    length = min(random.choice((1, 16, 512, 4096)), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]
