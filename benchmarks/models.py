"""A round as the model grows: `python -m benchmarks.models [--json FILE] [--quick]`.

100 of 1,000 clients as in benchmarks.core, perceptrons with one hidden layer. Each engine has a process of its own and
they take turns, with one thread for an operation, and what is compared is processor time: neither the number of cores
nor other programs matter to that much. The bound of engine=auto between `stacked` and the others is from this table.
"""

import argparse
from functools import partial
from pathlib import Path

import torch

from benchmarks.clients import start
from benchmarks.report import report
from benchmarks.sizes import CLASSES, FEATURES
from benchmarks.timing import Figure, interleaved, milliseconds, ratio
from benchmarks.worker import serve, working
from fedskew.simulation.simulation import advance

HIDDEN = (8, 84, 845, 8_450)
ENGINES = ("stacked", "serial", "threaded")


def measure(turns: int, hidden: int) -> list[Figure]:
    """The engines on one model."""
    parameters = (FEATURES + 1) * hidden + (hidden + 1) * CLASSES
    part = f"processor time of a round, {parameters:,} parameters"
    commands = {name: ["benchmarks.models", "--work", name, "--hidden", str(hidden)] for name in ENGINES}
    with working(commands) as workers:
        interleaved(workers, turns, warm_up=1)
    seconds = {name: worker.processor[1:] for name, worker in workers.items()}
    ratios = [Figure(part, f"stacked / {name}", ratio(seconds, "stacked", name), "x") for name in ENGINES[1:]]
    return [*milliseconds(part, seconds), *ratios]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--hidden", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.work:
        serve(partial(advance, [start(1_000, engine=options.work, model=f"mlp:hidden={options.hidden}")]))
        return
    report(
        lambda: [figure for hidden in HIDDEN for figure in measure(5 if options.quick else 30, hidden)],
        options.json,
        quick=options.quick,
    )


if __name__ == "__main__":
    main()
