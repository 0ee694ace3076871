"""Disks that are full, fail, or may not be written."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fedskew import Run
from tests.helpers.attacked_run import FIELDS, ROUNDS, command, do, redone, state
from tests.helpers.attempts import Tally

_ROOM, _PAGE = 1024, 4
"""KiB: of the disk when there is room again, and the steps in which a small one is made larger."""
_HASH = Run(**FIELDS).hash
_CALLS: dict[str, Any] = {"fsync": os, "replace": Path, "open": Path, "mkdir": Path}


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """A disk of every size that is too small, every call of the store that can fail, and a disk that is read-only."""
    whole = tally.call("a run with room", lambda: _whole(folder / "whole")).value
    _failing_calls(tally, folder / "run", random, whole)
    disk = folder / "disk"
    disk.mkdir()
    if not _mounted(disk, "-t", "tmpfs", "-o", f"size={_ROOM}k", "tmpfs"):
        tally.skipped.append("no disk may be mounted here: the small and the read-only one are left out")
        return
    try:
        _small_disks(tally, disk, whole)
        _read_only(tally, disk, whole)
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def _small_disks(tally: Tally, disk: Path, whole: dict[str, Any]) -> None:
    for size in range(_PAGE, _ROOM, _PAGE):
        case = f"a disk of {size} KiB"
        _remount(disk, f"size={size}k")
        outcome = tally.call(case, lambda: do(disk / "runs"))
        tally.count("disks too small" if outcome.code else "disks just large enough")
        if outcome.code and not (str(disk) in outcome.said and "No space left" in outcome.said):
            tally.bare.append(f"{case}: no word of the file: {outcome.said}")
        _remount(disk, f"size={_ROOM}k")
        _compare(tally, f"{case}, with room again", disk / "runs", whole)
        shutil.rmtree(disk / "runs")
        if not outcome.code:
            return


def _read_only(tally: Tally, disk: Path, whole: dict[str, Any]) -> None:
    tally.call("a disk to write", lambda: do(disk / "runs"))
    _remount(disk, "ro")
    for rounds in (ROUNDS, ROUNDS - 1):
        outcome = tally.command(f"read-only, {rounds} rounds", *command(disk / "runs", rounds))
        said = whole["records"][rounds - 1]["accuracy"]
        if outcome.code or not outcome.out.startswith(f"{100 * said:.2f} "):
            tally.silent.append(f"a finished run on a read-only disk: {outcome.said}")
    for words in (["runs", "list"], ["report", "-o", str(disk.parent / "page.html")]):
        if (outcome := tally.command(f"read-only, {words[0]}", *words, "--runs", str(disk / "runs"))).code:
            tally.silent.append(f"{words[0]} of a read-only disk: {outcome.said}")
    outcome = tally.command("read-only, more rounds", *command(disk / "runs", ROUNDS + 1))
    if not outcome.code or str(disk) not in outcome.said:
        tally.silent.append(f"more rounds on a read-only disk: {outcome.said}")
    _remount(disk, "rw")
    _compare(tally, "read-only, then not", disk / "runs", whole)


def _failing_calls(tally: Tally, root: Path, random: Random, whole: dict[str, Any]) -> None:
    """Each call in turn says that the disk is full, or that it is broken; and from there on, all of them."""
    counts = tally.call("calls", lambda: _counted(root)).value
    cases = [(name, number) for name in _CALLS for number in range(1, counts[name] + 1)]
    for name, number in random.sample(cases, len(cases)):
        shutil.rmtree(root, ignore_errors=True)
        code, lasting = random.choice((errno.ENOSPC, errno.EIO)), random.random() < 0.5
        case = f"{os.strerror(code)} at {name} {number}{' and after' if lasting else ''}"
        outcome = tally.call(case, lambda: do(root), before=partial(_fail, name, number, code, lasting))
        tally.count("failing calls")
        if outcome.code and str(root) not in outcome.said:
            tally.bare.append(f"{case}: no word of the file: {outcome.said}")
        _compare(tally, f"{case}, again", root, whole)


def _counted(root: Path) -> dict[str, int]:
    """How often each call is made in a whole run."""
    counts = dict.fromkeys(_CALLS, 0)

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            counts[name] += _of_store(name, arguments)
            return call(*arguments, **named)

        return wrapped

    for name, owner in _CALLS.items():
        setattr(owner, name, counting(name, getattr(owner, name)))
    do(root)
    return counts


def _fail(name: str, number: int, code: int, lasting: bool) -> None:
    """Let a call of the store fail when it is made for the `number`th time, or from then on."""
    owner, made = _CALLS[name], [0]
    call = getattr(owner, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        made[0] += _of_store(name, arguments)
        if made[0] == number or (lasting and made[0] > number):
            raise OSError(code, os.strerror(code), *(() if name == "fsync" else (str(arguments[0]),)))
        return call(*arguments, **named)

    setattr(owner, name, failing)


def _of_store(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a call is about a run's files; only the store calls fsync."""
    return name == "fsync" or arguments[0].suffix in (".jsonl", ".part") or arguments[0].name in ("run", _HASH)


def _whole(root: Path) -> dict[str, Any]:
    do(root)
    return state(root)


def _compare(tally: Tally, case: str, root: Path, whole: dict[str, Any]) -> None:
    again = tally.call(case, lambda: redone(root))
    if again.code or again.value != whole:
        tally.silent.append(f"{case}: {again.said if again.code else 'another result'}")


def _mounted(disk: Path, *options: str) -> bool:
    made = subprocess.run(["mount", *options, str(disk)], check=False, capture_output=True)
    return made.returncode == 0


def _remount(disk: Path, option: str) -> None:
    assert _mounted(disk, "-o", f"remount,{option}"), f"{disk} cannot be mounted with {option}"
