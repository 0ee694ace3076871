"""Processes that are killed in the middle of a run."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import fedskew
from tests.helpers.attacked_run import command, do, redone, state
from tests.helpers.attempts import Tally

_STORE = {str(Path(fedskew.__file__).parent / "runs" / name) for name in ("store.py", "checkpoint.py", "sealed.py")}
_RANDOM = 60
"""Kills at random moments; half of them are interruptions as by Ctrl-C."""


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """At every line of the code that writes the store, and at random moments; the same command must end the same."""
    whole, traced = tally.call("a run that nobody kills", lambda: _whole(folder / "whole")).value
    times: dict[str, list[int]] = {}
    for moment, line in enumerate(traced, 1):
        times.setdefault(line, []).append(moment)
    chosen = [(line, m) for line, all_ in times.items() for m in sorted({all_[0], random.choice(all_), all_[-1]})]
    tally.counted["lines of the store"] = len(times)
    seconds = tally.call("a run with a clock", lambda: _seconds(folder / "timed")).value
    kills = [Kill(f"killed at {line}, step {moment}", partial(_at, moment)) for line, moment in chosen]
    for number in range(_RANDOM):
        when, gently = random.uniform(0.005, seconds), number % 2 == 0
        case = f"{'interrupted' if gently else 'killed'} after {when:.3f} s"
        kills.append(Kill(case, partial(_after, when, gently), "at a random moment", gently))
    for kill in random.sample(kills, len(kills)):
        _killed(tally, folder / "run", kill, whole)


@dataclass(frozen=True)
class Kill:
    """`arm` prepares the process; `gently` is by an interruption that it may answer."""

    case: str
    arm: Callable[[], None]
    kind: str = "at a line"
    gently: bool = False


def _killed(tally: Tally, root: Path, kill: Kill, whole: dict[str, Any]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    tally.count(f"{'interruptions' if kill.gently else 'kills'} {kill.kind}")
    if kill.gently:
        outcome = tally.command(kill.case, *command(root), before=kill.arm)
    else:
        outcome = tally.call(kill.case, lambda: do(root), before=kill.arm)
    if outcome.code not in (0, 130 if kill.gently else -signal.SIGKILL):
        tally.silent.append(f"{kill.case}: ended with {outcome.code}, {outcome.said}")
    again = tally.call(f"{kill.case}, again", lambda: redone(root))
    if again.code or again.value != whole:
        wrong = again.value.get("claimed", "another result") if again.value else again.said
        tally.silent.append(f"{kill.case}: {wrong}")


def _whole(root: Path) -> tuple[dict[str, Any], list[str]]:
    """The result of the whole run, and the lines of the store that it goes through."""
    seen: list[str] = []
    _trace(lambda frame: seen.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"))
    do(root)
    sys.settrace(None)
    return state(root), seen


def _seconds(root: Path) -> float:
    began = time.perf_counter()
    do(root)
    return time.perf_counter() - began


def _trace(look: Callable[[FrameType], Any]) -> None:
    """Look at every line of the store's code before it runs."""

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            look(frame)
        return line

    sys.settrace(lambda frame, event, _: line if frame.f_code.co_filename in _STORE else None)


def _at(moment: int) -> None:
    """Kill this process when it comes to the line of that number."""
    left = [moment]

    def look(_: FrameType) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    _trace(look)


def _after(seconds: float, gently: bool) -> None:
    number = signal.SIGINT if gently else signal.SIGKILL
    threading.Timer(seconds, lambda: os.kill(os.getpid(), number)).start()
