"""Fuzzed specs, options, run files, tables, arrays, images and things that are no files.

`python -m tests.torture_inputs --seed 0 --only 17` makes one input again and shows its answer.
"""

import argparse
import importlib
import os
import shutil
import time
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from PIL import Image

from fedskew.data import cifar
from tests.helpers.attempts import Outcome, Tally
from tests.helpers.odd_inputs import made

COUNT = 1000
_LATE = (
    "fedskew.cli", "fedskew.simulation", "fedskew.diagnostics", "fedskew.tracking", "fedskew.cli.terminal.watch",
    "fedskew.paper", "fedskew.advice.findings", "fedskew.advice.command", "fedskew.data.fetch",
    "fedskew.partition.count_file", "fedskew.advice.text", "fedskew.report.comparison", "fedskew.paper.formats",
    "fedskew.report.page.page", "fedskew.report.page.files", "fedskew.report.diagnostic_figures", "rich.progress",
    "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "pyarrow.parquet", "scipy.io",
    "cryptography.x509",
)  # fmt: skip
"""What commands import when they need it: once, before children are forked."""
_LONGEST = 2000


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """A thousand inputs, each a command and its files, drawn from 14 kinds."""
    prepare()
    seed = random.randrange(2**32)
    for number in range(COUNT):
        tried(tally, folder, seed, number)


def prepare() -> None:
    """Import what children would import one by one."""
    for name in _LATE:
        importlib.import_module(name)
    Image.init()


def tried(tally: Tally, folder: Path, seed: int, number: int) -> Outcome:
    """One input in a folder of its own, and all that is wrong with its answer."""
    place = folder / str(number)
    place.mkdir()
    kind, arguments = made(Random(f"{seed}/{number}"), place)
    case = f"seed {seed}, input {number} ({kind}): {' '.join(map(ascii, arguments))[:300]}"
    outcome = tally.command(case, *arguments, before=partial(_enter, place))
    own = place / "mine.py"
    interrupts = own.is_file() and "KeyboardInterrupt" in own.read_text(errors="replace")  # the user's own Ctrl-C
    shutil.rmtree(place, ignore_errors=True)
    ends = {0: "done", 1: "failed", 2: "refused", **({130: "interrupted"} if interrupts else {})}
    tally.count(ends.get(outcome.code, "ended otherwise"))
    if outcome.code not in ends:
        tally.tracebacks.append(f"{case}: exit code {outcome.code}")
    for text in (outcome.out, outcome.err):
        odd = next((letter for letter in text if not letter.isprintable() and letter not in "\n\t"), None)
        if odd is not None:
            tally.bare.append(f"{case}: {odd!a} reaches the terminal")
    if outcome.code in (1, 2) and not outcome.said:
        tally.bare.append(f"{case}: exit code {outcome.code} without a word")
    if outcome.code in (1, 2) and len(outcome.err) > _LONGEST:
        tally.bare.append(f"{case}: {len(outcome.err)} letters")
    return outcome


def _enter(place: Path) -> None:
    """In the child: a folder of its own, no store or data but what is there, and official files of few images."""
    os.chdir(place)
    os.environ |= {"COLUMNS": "120", "FEDSKEW_RUNS": "runs", "FEDSKEW_DATA": "data"}
    cifar.BATCH, cifar._CHUNK = 3, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--only", type=int, help="one input, by its number")
    parser.add_argument("--show", action="store_true", help="every answer, not only the wrong ones")
    asked = parser.parse_args()
    prepare()
    tally, began = Tally("inputs", float("inf")), time.monotonic()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number in range(asked.count) if asked.only is None else [asked.only]:
            known, start = set(tally.failures), time.monotonic()
            outcome = tried(tally, Path(folder), asked.seed, number)
            took = time.monotonic() - start
            if asked.show or asked.only is not None or took > 5:
                print(f"{number}, {took:.1f} s, exit code {outcome.code}: {outcome.said[:500]!a}", flush=True)
            for failure in (failure for failure in tally.failures if failure not in known):
                print(failure, flush=True)
    print(f"{tally.tries} inputs in {time.monotonic() - began:.0f} s: {tally.counted}, {len(tally.failures)} failures")
    raise SystemExit(bool(tally.failures))


if __name__ == "__main__":
    main()
