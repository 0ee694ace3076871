"""Attempts to break the package: each in a process of its own, with what it said and how it ended, counted.

A child is forked from a process that has imported everything and trained nothing, so an attempt costs milliseconds and
may hang, be killed or fill its memory without harm to the others.
"""

import ast
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fedskew

HANG = 20.0
"""Seconds after which an attempt counts as hanging."""
_PACKAGE = str(Path(fedskew.__file__).parent)
_BARE = re.compile(
    r"""^'?\w+'?$                                         # a KeyError's whole text
    |object\ (is\ not|has\ no|does\ not|cannot)\b |\bNoneType\b |<class\ ' |<\w+[\w.]*\ object\ at\ 0x
    |unsupported\ operand |not\ supported\ between |index\ out\ of\ range |(not\ enough|too\ many)\ values\ to\ unpack
    |invalid\ literal\ for |could\ not\ convert\ string |codec\ can't |unhashable\ type |\[Errno |list\ indices
    |string\ indices |unexpected\ keyword |missing\ \d+\ required |positional\ argument |Expecting\ (value|property)
    |Extra\ data:\ line |division\ by\ zero |maximum\ recursion |cannot\ reshape |Traceback\ \(most |^None:
    |\b(Key|Type|Attribute|Index|Value|Runtime|OS|Assertion|Overflow|Unicode\w*)Error\b""",
    re.X | re.M,
)


class TimeUp(Exception):
    """The time of a family of attacks is over."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: its exit code (negative: the signal that killed it) and what it said and gave."""

    code: int
    out: str
    err: str
    value: Any = None

    @property
    def said(self) -> str:
        return self.err.strip() or self.out.strip()


@dataclass
class Tally:
    """What a family of attacks counted. All four lists must stay empty."""

    name: str
    until: float
    tries: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        named = ("tracebacks", "bare", "hangs", "silent")
        return [f"{name}: {case}" for name in named for case in getattr(self, name)]

    def count(self, what: str) -> None:
        """One more of something that the report mentions."""
        self.counted[what] = self.counted.get(what, 0) + 1

    def command(self, case: str, *arguments: str, before: Callable[[], object] | None = None) -> Outcome:
        """`fedskew ARGUMENTS` in a child, after `before`; what is wrong with its answer is counted under `case`."""
        return self.call(case, lambda: _command(arguments), before=before)

    def call(self, case: str, work: Callable[[], Any], before: Callable[[], object] | None = None) -> Outcome:
        """Some work in a child; it gives something that JSON can say."""
        if time.monotonic() > self.until:
            raise TimeUp
        self.tries += 1

        def whole() -> Any:
            if before is not None:
                before()
            return work()

        outcome, bare = attempt(whole)
        if outcome.code == -signal.SIGALRM:
            self.hangs.append(f"{case}: over {HANG:g} s")
        elif outcome.code < 0 and outcome.code != -signal.SIGKILL:
            self.tracebacks.append(f"{case}: ended by signal {-outcome.code}")
        elif "Traceback (most recent call last)" in outcome.err:
            self.tracebacks.append(f"{case}: {outcome.err.strip().splitlines()[-1]}")
        elif bare or (outcome.code and _BARE.search(_without_prefix(outcome.said))):
            self.bare.append(f"{case}: {bare or outcome.said}")
        return outcome


def attempt(work: Callable[[], Any]) -> tuple[Outcome, str]:
    """Work in a forked child that is killed when it hangs; with the type of an error whose text nobody wrote."""
    with TemporaryDirectory(prefix="attempt") as folder:
        out, err, gave = (Path(folder) / name for name in ("out", "err", "gave"))
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _child(work, out, err, gave)
        code = _waited(child)
        said = json.loads(gave.read_text()) if gave.exists() and gave.stat().st_size else {}
        texts = (path.read_text(errors="replace") if path.exists() else "" for path in (out, err))
        return Outcome(code, *texts, said.get("value")), str(said.get("bare", ""))


def _child(work: Callable[[], Any], out: Path, err: Path, gave: Path) -> None:
    """Never returns."""
    code, said = 70, dict[str, Any]()
    try:
        for path, number in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
        os.environ["FEDSKEW_DEBUG"] = "1"  # errors come out as they are, to be looked at
        target = os.open(gave, os.O_CREAT | os.O_WRONLY)
        code, said = 0, {"value": work()}
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else int(bool(done.code))
    except Exception as error:
        from fedskew.cli.entry import complain, explained

        code = complain(*explained(error))
        said = {"bare": "" if _spoken(error) else f"{type(error).__name__}: {error}"}
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(target, json.dumps(said, default=str).encode())
        os._exit(code)


def _waited(child: int) -> int:
    """A child's exit code; where it hangs it is killed, which reads as SIGALRM."""
    began = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > HANG:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM
        time.sleep(0.002)


def _command(arguments: tuple[str, ...]) -> None:
    from fedskew.cli import main

    main(list(arguments))


def _spoken(error: BaseException) -> bool:
    """Whether somebody wrote an error's text for the user: the package raised it in so many words, or the operating
    system names the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.filename is not None
    if type(error.__cause__).__name__ == "ValidationError":
        error = error.__cause__  # type: ignore[assignment]
    if type(error).__name__ == "ValidationError":
        inner = error.errors()[0].get("ctx", {}).get("error")  # type: ignore[attr-defined]
        return not isinstance(inner, Exception) or _spoken(inner)
    if type(error).__module__.startswith("click"):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not frames[-1].filename.startswith(_PACKAGE):
        return False
    return frames[-1].lineno in _raises(frames[-1].filename)


@lru_cache
def _raises(file: str) -> set[int]:
    """The lines of a file that raise something."""
    return {node.lineno for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Raise)}


def _without_prefix(text: str) -> str:
    """What the package says: not its name, nor the words of an error in the user's own code."""
    return "\n".join(_OWN_CODE.split(line.removeprefix("fedskew: "))[0] for line in text.splitlines())


_OWN_CODE = re.compile(
    r"(?<=\.py:)\S+ failed: |(?<=\.py) could not be imported: |round \d+, clients [^:]*: (?=.*; this run has its own )"
)
