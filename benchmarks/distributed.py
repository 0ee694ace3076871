"""What a second rank is worth: `python -m benchmarks.distributed [--json FILE] [--quick]`.

A round of the same clients in one process on one core, in one process on every core, and over as many ranks as there
are cores with one core each, all with the same engine; they take turns. Then what the one all-reduce of a round costs
by the size of the model, between ranks on this machine.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks import convnet
from benchmarks.report import report
from benchmarks.timing import Figure, Seconds, Spread, interleaved, milliseconds
from benchmarks.worker import Worker, working
from fedskew import Run
from fedskew.core import ranks
from fedskew.core.round import Sums
from fedskew.engine.distributed import join_ranks
from fedskew.simulation.simulation import Simulation, advance

CORES = sorted(os.sched_getaffinity(0))
ONE, ALL, RANKS = "one process, one core", "one process, all cores", f"{len(CORES)} ranks, one core each"
SIZES = {"100 thousand": 10**5, "1 million": 10**6, "10 million": 10**7}
NEVER = 10**9


def start(part: str) -> Simulation:
    never = {"rounds": NEVER, "eval_every": NEVER}
    if part == "images":
        data = f"{Path(convnet.__file__)}:images"
        fields = {"model": "mcmahan", "clients": 8, "batch_size": 128, "engine": "threaded", "partition": "natural"}
        return Simulation(Run(dataset=data, **fields, **never))
    return Simulation(Run(dataset="synthetic:1,1", clients=100, batch_size=32, engine="stacked", **never))


PARTS = {
    "images": "8 clients x 512 images, McMahan's CNN, threaded",
    "synthetic": "100 clients of Synthetic(1,1), logistic regression, stacked",
}


def task(part: str) -> Callable[[], object]:
    """What a contestant does at its turn."""
    if part in PARTS:
        return partial(advance, [start(part)])
    together = join_ranks(torch.device("cpu"))
    sums = Sums({"w": torch.zeros(int(part))}, {}, {}, *torch.zeros(3))
    return partial(together.add, sums)


def work(part: str, name: str) -> None:
    """A turn for each line that comes in; the first rank reads the lines and tells the others."""
    if name != ALL:
        os.sched_setaffinity(0, {CORES[ranks.on_machine() % len(CORES)]})
        torch.set_num_threads(1)
    turn, together = task(part), join_ranks(torch.device("cpu"))
    while together.broadcast(int(bool(sys.stdin.readline())) if not together.rank else 0):
        turn()
        if not together.rank:
            print(0.0, 0.0, flush=True)


def command(part: str, name: str) -> list[str]:
    mine = ["benchmarks.distributed", "--work", part, "--as", name]
    if name != RANKS:
        return mine
    return ["torch.distributed.run", "--standalone", "--nproc-per-node", str(len(CORES)), "-m", *mine]


def turns_of(part: str, names: list[str], turns: int) -> Seconds:
    with working({name: command(part, name) for name in names}) as workers:
        tasks: dict[str, Worker] = workers
        return interleaved(tasks, turns)


def measure(turns: int) -> list[Figure]:
    figures = []
    for part, title in PARTS.items():
        seconds = turns_of(part, [ONE, ALL, RANKS], turns)
        figures += milliseconds(title, seconds)
        gain = [one / many / len(CORES) for one, many in zip(seconds[ONE], seconds[RANKS], strict=True)]
        figures.append(Figure(title, "efficiency of ranks: one core's time / cores x theirs", Spread.of(gain), ""))
    for words, size in SIZES.items():
        seconds = turns_of(str(size), [RANKS], 3 * turns)
        figures += milliseconds("all-reduce, float32", {f"{words} parameters": seconds[RANKS]})
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.name)
        return
    report(lambda: measure(3 if options.quick else 20), options.json, quick=options.quick)


if __name__ == "__main__":
    main()
