"""Attacks on the package, counted: `make torture`, or `python -m tests.torture --help`.

Each file `torture_*.py` beside this one is a family of attacks with a function

    attack(tally: Tally, folder: Path, random: Random) -> None

whose docstring's first line says what it does. It asks `tally.command` or `tally.call` for attempts, each in a process
of its own, and names what came out wrong in `tally.silent`; `tests/helpers/attempts.py` counts the rest. The exit code
is 1 where anything was counted that must not be.
"""

import argparse
import importlib
import os
import sys
import time
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fedskew.cli import main as main_command
from tests.helpers.attacked_run import do
from tests.helpers.attempts import Tally, TimeUp

SECONDS = 580.0
"""For all families: with what comes before and after, ten minutes."""
_MEMORY = Path("/dev/shm")
"""Where files are in memory: a kill leaves the same there, and nobody waits for a disk."""
_SHOWN = 20
"""Failures of a family that are printed."""


def families() -> dict[str, str]:
    """Names of families and the modules that hold them."""
    files = sorted(Path(__file__).parent.glob("torture_*.py"))
    return {path.stem.removeprefix("torture_"): f"tests.{path.stem}" for path in files}


def warm() -> None:
    """Import what attacks need and train a little, so that a forked attempt need not."""
    with TemporaryDirectory(prefix="torture") as folder, redirect_stdout(StringIO()):
        do(Path(folder) / "runs")
        for words in (["runs", "list"], ["report", "-o", f"{folder}/page.html"], ["paper", "list"]):
            with suppress(SystemExit):
                main_command([*words, "--runs", f"{folder}/runs"])


def run(names: list[str], seconds: float, seed: int) -> list[Tally]:
    """Every family in its share of the time that is left."""
    end, tallies = time.monotonic() + seconds, []
    for i, name in enumerate(names):
        now = time.monotonic()
        tally = Tally(name, now + (end - now) / (len(names) - i))
        tallies.append(tally)
        print(f"{name} ...", file=sys.stderr, flush=True)
        with TemporaryDirectory(prefix="torture", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            try:
                importlib.import_module(families()[name]).attack(tally, Path(folder), Random(f"{seed} {name}"))
            except TimeUp:
                tally.skipped.append("its time was over before its list of attacks was")
    return tallies


def table(tallies: list[Tally]) -> str:
    """What was counted, as Markdown."""
    counts = ("attempts", "tracebacks", "bare Python texts", "hangs over 20 s", "silent differences")
    heads = ("attacks", *counts, "beside")
    rows = [(t.name, t.tries, len(t.tracebacks), len(t.bare), len(t.hangs), len(t.silent), _beside(t)) for t in tallies]
    total = ("all", *(sum(row[i] for row in rows) for i in range(1, 6)), "")  # type: ignore[misc]
    lines = [heads, ("---",) * len(heads), *rows, total]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _beside(tally: Tally) -> str:
    return "; ".join([*(f"{number:,} {what}" for what, number in tally.counted.items()), *tally.skipped])


def between(page: str, part: str) -> str:
    """A page with the part between its marks replaced."""
    head, rest = page.split(" -->\n", 1)
    return f"{head} -->\n{part}\n{rest[rest.index('<!-- end') :]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(families()), action="append", help="a family; repeats")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all families together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="a page whose part between two marks is to hold the table")
    given = parser.parse_args()
    began = time.monotonic()
    warm()
    tallies = run(given.only or list(families()), given.seconds, given.seed)
    result = f"{table(tallies)}\n\nseed {given.seed}, {time.monotonic() - began:.0f} s on {os.cpu_count()} cores"
    print(result)
    if given.write is not None:
        given.write.write_text(between(given.write.read_text(), result))
    failures = [f"{tally.name}, {failure}" for tally in tallies for failure in tally.failures[:_SHOWN]]
    for failure in failures:
        print(failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
