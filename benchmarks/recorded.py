"""What recording steps is worth: `python -m benchmarks.recorded [--json FILE]`.

Rounds with and without recorded steps take turns in one process with one thread. Processor time, so that other programs
on the machine count as little as possible.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.clients import start
from benchmarks.report import report
from benchmarks.timing import Figure, Seconds, milliseconds, ratio
from fedskew import Run
from fedskew.engine import recorded
from fedskew.simulation.simulation import Simulation, advance

METHODS = "fedavg", "fedlc", "fedrs", "fedprox", "scaffold"
SMALL, RAGGED = "small clients", "ragged clients"
AS_IT_IS = "as it is"
RECORDED = "recorded"
_NEVER = 10**9


def turns_of(tasks: dict[str, Callable[[], object]], turns: int, warm_up: int) -> Seconds:
    """Processor seconds of each task at each turn."""
    seconds: Seconds = {name: [] for name in tasks}
    for turn in range(warm_up + turns):
        for name, task in tasks.items():
            began = time.process_time()
            task()
            if turn >= warm_up:
                seconds[name].append(time.process_time() - began)
    return seconds


def plainly(simulations: Sequence[Simulation]) -> None:
    """A round in which nothing is recorded."""
    often, recorded._OFTEN = recorded._OFTEN, _NEVER
    try:
        advance(simulations)
    finally:
        recorded._OFTEN = often


def measure_methods(turns: int) -> list[Figure]:
    """100 of 1,000 small clients, logistic regression."""
    tasks: dict[str, Callable[[], object]] = {}
    for name in METHODS:
        tasks[f"{name}, {AS_IT_IS}"] = partial(plainly, [start(1_000, name)])
        tasks[f"{name}, {RECORDED}"] = partial(advance, [start(1_000, name)])
    seconds = turns_of(tasks, turns, warm_up=60)

    def compared(name: str, against: str) -> Figure:
        return Figure(SMALL, f"{name} / {against}", ratio(seconds, name, against), "x")

    return [
        *milliseconds(SMALL, seconds),
        *(compared(f"{name}, {AS_IT_IS}", f"{name}, {RECORDED}") for name in METHODS),
        *(compared(f"{name}, {RECORDED}", f"{METHODS[0]}, {RECORDED}") for name in METHODS[1:]),
    ]


def measure_seeds(turns: int) -> list[Figure]:
    """synthetic:1,1, all of 100 clients: one seed, and five together."""
    figures: list[Figure] = []
    run = Run(dataset="synthetic:1,1", clients=100, batch_size=10, rounds=10**9, eval_every=10**9, engine="stacked")
    for name, seeds in (("one seed", (3,)), ("five seeds", range(5))):
        apart = [[Simulation(run.model_copy(update={"seed": seed})) for seed in seeds] for _ in range(2)]
        tasks: dict[str, Callable[[], object]] = {
            f"{name}, {AS_IT_IS}": partial(plainly, apart[0]),
            f"{name}, {RECORDED}": partial(advance, apart[1]),
        }
        seconds = turns_of(tasks, turns, warm_up=1)
        plain, replayed = tasks
        figures += milliseconds(RAGGED, seconds)
        figures.append(Figure(RAGGED, f"{plain} / {replayed}", ratio(seconds, plain, replayed), "x"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorded", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--turns", type=int, default=200, help="of small clients; ragged ones take a fortieth of it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report(
        lambda: [*measure_methods(options.turns), *measure_seeds(max(3, options.turns // 40))],
        options.json,
        time="processor time",
    )


if __name__ == "__main__":
    main()
