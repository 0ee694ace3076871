"""How fast the core is: `python -m benchmarks.core [--json FILE] [--quick]` prints a table and keeps every figure.

Whatever is compared takes turns in one process; a figure is a median with its quartiles, a ratio is one of medians.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from benchmarks.by_hand import AUTOGRAD, PLAIN, TUNED, Batched, OneByOne
from benchmarks.clients import start
from benchmarks.report import report
from benchmarks.sizes import COHORT
from benchmarks.timing import Figure, Spread, exact, interleaved, milliseconds, ratio
from fedskew import Run
from fedskew.simulation.session import simulate_many
from fedskew.simulation.simulation import Simulation, advance

ROUND = "a round of logistic regression"
POPULATION = "a hundred times as many clients"
GROWTH = "growth"
METHODS = "methods"
IMPORTS = "imports"
SEEDS = "five seeds of synthetic:1,1"
TOGETHER = "five seeds together"
UNTIL_RECORDED = 60
"""Rounds after which the steps that come in every round are recorded (engine/recorded.py)."""


def measure_round(turns: int) -> list[Figure]:
    """Sampling, shuffling, local steps and averaging; 100 of 1,000 clients of about 50 examples, batches of 10."""
    simulation = start(1_000)
    initial = simulation.server.params["linear.weight"], simulation.server.params["linear.bias"]
    by_hand = {
        "by hand, autograd": AUTOGRAD,
        "by hand, plain gradient": PLAIN,
        "by hand, tuned gradient": TUNED,
    }
    tasks: dict[str, Callable[[], object]] = {"stacked": partial(advance, [simulation])}
    for name, step in by_hand.items():
        check_same_work(start(1_000), Batched(simulation.federation, *initial, step))
        tasks[name] = Batched(simulation.federation, *initial, step).round
    seconds = interleaved(tasks, turns, warm_up=UNTIL_RECORDED)
    slow = interleaved(
        {
            "stacked": tasks["stacked"],
            "by hand, autograd": tasks["by hand, autograd"],
            "client by client": OneByOne(simulation.federation, *initial).round,
            "serial": partial(advance, [start(1_000, engine="serial")]),
        },
        max(3, turns // 10),
        warm_up=1,
    )
    limits = {"by hand, autograd": 2.0, "by hand, plain gradient": 2.0}
    return [
        *milliseconds(ROUND, {**seconds, "client by client": slow["client by client"], "serial": slow["serial"]}),
        *(
            Figure(ROUND, f"stacked / {name}", ratio(seconds, "stacked", name), "x", limits.get(name))
            for name in by_hand
        ),
        *(
            Figure(ROUND, f"client by client / {name}", ratio(slow, "client by client", name), "x")
            for name in ("by hand, autograd", "stacked")
        ),
    ]


def check_same_work(simulation: Simulation, batched: Batched) -> None:
    """On the same clients in the same order, the loop by hand ends where a round of the package ends."""
    cohort = simulation.cohort(1)
    parts = np.split(
        simulation.federation.shuffled(cohort.clients, cohort.seed, 1, 1),
        np.cumsum(simulation.federation.sizes(cohort.clients))[:-1],
    )
    width = len(batched.column)
    examples = torch.from_numpy(np.stack([np.pad(part, (0, width - len(part))) for part in parts]))
    batched.train(torch.from_numpy(cohort.clients), examples)
    advance([simulation])
    torch.testing.assert_close(batched.weight, simulation.server.params["linear.weight"])
    torch.testing.assert_close(batched.bias, simulation.server.params["linear.bias"])


def measure_population(turns: int, clients: int) -> list[Figure]:
    """The same cohort out of more clients: a round takes as long, and memory is the data."""
    few, many = "of 1,000 clients", f"of {clients:,} clients"
    tasks: dict[str, Callable[[], object]] = {
        few: partial(advance, [start(1_000)]),
        many: partial(advance, [start(clients)]),
    }
    seconds = interleaved(tasks, turns)
    rounds = 20
    held = _memory(clients, COHORT, rounds)
    return [
        *milliseconds(POPULATION, seconds),
        Figure(POPULATION, f"{many} / {few}", ratio(seconds, many, few), "x", 1.3),
        exact(POPULATION, "data", held["data"] / 2**20, "MiB"),
        exact(POPULATION, "peak memory above a small run / data", held["above"] / held["data"], "x", 1.3),
        exact(POPULATION, f"clients seen in {rounds} rounds", held["seen"], ""),
        exact(
            POPULATION,
            "scaffold's states / (clients seen x model)",
            held["states"] / (held["seen"] * held["model"]),
            "x",
            1.0,
        ),
    ]


def measure_growth(turns: int, populations: Sequence[int], cohorts: Sequence[int]) -> list[Figure]:
    """Time and memory of a round as the population grows, and as the cohort does; memory is that of the process."""
    sizes = {f"{COHORT} of {clients:,} clients": (clients, COHORT) for clients in populations}
    sizes |= {f"{cohort:,} of 10,000 clients": (10_000, cohort) for cohort in cohorts}
    tasks: dict[str, Callable[[], object]] = {
        name: partial(advance, [start(clients, cohort=cohort)]) for name, (clients, cohort) in sizes.items()
    }
    seconds = interleaved(tasks, turns)
    held = {name: _memory(clients, cohort, 5) for name, (clients, cohort) in sizes.items()}
    return [
        *milliseconds(GROWTH, seconds),
        *(exact(GROWTH, f"{name}: data", memory["data"] / 2**20, "MiB") for name, memory in held.items()),
        *(exact(GROWTH, f"{name}: peak memory", memory["peak"] / 2**20, "MiB") for name, memory in held.items()),
    ]


def _memory(clients: int, cohort: int, rounds: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", str(clients), str(cohort), str(rounds)]
    told: dict[str, int] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return told


def measure_methods(turns: int) -> list[Figure]:
    limits = {"fedlc": 1.05, "fedrs": 1.05, "fedprox": 1.05, "scaffold": 1.15}
    tasks: dict[str, Callable[[], object]] = {
        name: partial(advance, [start(1_000, name)]) for name in ("fedavg", *limits)
    }
    seconds = interleaved(tasks, turns, warm_up=UNTIL_RECORDED)
    ratios = [
        Figure(METHODS, f"{name} / fedavg", ratio(seconds, name, "fedavg"), "x", limit)
        for name, limit in limits.items()
    ]
    return [*milliseconds(METHODS, seconds), *ratios]


def measure_imports(turns: int) -> list[Figure]:
    """Fresh processes that have their bytecode at hand, as after an installation."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def python(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, *arguments]
            return subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

        with_help = find_spec("fedskew.cli") is not None
        tasks: dict[str, Callable[[], object]] = {
            "python": partial(python, "-c", "pass"),
            "import torch": partial(python, "-c", "import torch"),
            "from fedskew import Run, simulate": partial(
                python, "-c", "import torch; from fedskew import Run, simulate"
            ),
        }
        if with_help:
            tasks["fedskew --help"] = partial(python, "-m", "fedskew", "--help")
        seconds = interleaved(tasks, turns, warm_up=1)
        beyond = [
            b - a for a, b in zip(seconds["import torch"], seconds["from fedskew import Run, simulate"], strict=True)
        ]
        figures = [
            *milliseconds(IMPORTS, seconds),
            Figure(IMPORTS, "fedskew beyond torch", Spread.of([1e3 * s for s in beyond]), "ms", 300.0),
        ]
        if with_help:
            imported = python("-X", "importtime", "-m", "fedskew", "--help").stderr.splitlines()
            torches = sum(line.rpartition("|")[2].strip() == "torch" for line in imported)
            figures.append(exact(IMPORTS, "fedskew --help imports torch", torches, "times", 0.0))
        return figures


def measure_seeds(rounds: int) -> list[Figure]:
    """Records as `simulate_many` yields them, all 100 clients in every round, without evaluation.

    Together the seeds take as many steps as the one with the largest client. A client's steps follow one another, so no
    order of work takes fewer, and the ratio of these numbers of steps is about the least that can be reached.
    """
    run = Run(dataset="synthetic:1,1", clients=100, batch_size=10, rounds=10**9, eval_every=10**9, engine="stacked")
    runs = [run.model_copy(update={"seed": seed}) for seed in range(5)]
    tasks: dict[str, Callable[[], object]] = {
        f"seed {run.seed} alone": partial(_ask, simulate_many([run]), 1) for run in runs
    }
    seconds = interleaved({**tasks, TOGETHER: partial(_ask, simulate_many(runs), len(runs))}, rounds, warm_up=1)
    turns = list(zip(*(seconds[name] for name in tasks), strict=True))
    compared = {
        TOGETHER: seconds[TOGETHER],
        "the slowest seed alone": [max(turn) for turn in turns],
        "a seed alone, on average": [sum(turn) / len(turn) for turn in turns],
    }
    limits = {"a seed alone, on average": 1.8, "the slowest seed alone": None}
    longest = [_most_steps(Simulation(run)) for run in runs]
    return [
        *milliseconds(SEEDS, compared),
        exact(SEEDS, "most steps of a client: the slowest seed / a seed on average", max(longest) / mean(longest), "x"),
        *(
            Figure(SEEDS, f"{TOGETHER} / {name}", ratio(compared, TOGETHER, name), "x", limit)
            for name, limit in limits.items()
        ),
    ]


def _most_steps(simulation: Simulation) -> int:
    return int(simulation.settings.steps(simulation.federation.sizes(simulation.everyone)).max())


def _ask(records: Iterator[object], count: int) -> None:
    assert len(list(islice(records, count))) == count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns and a population of 10,000: a minute or two")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="threads of PyTorch; small models are trained with one (%(default)s)",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    turns = 20 if options.quick else 200
    populations = (100, 1_000, 10_000, 100_000)
    report(
        lambda: [
            *measure_round(turns),
            *measure_population(turns, populations[-2] if options.quick else populations[-1]),
            *measure_growth(max(5, turns // 10), populations[: 3 if options.quick else 4], (10, 100, 1_000)),
            *measure_methods(turns),
            *measure_imports(3 if options.quick else 9),
            *measure_seeds(3 if options.quick else 10),
        ],
        options.json,
        quick=options.quick,
    )


if __name__ == "__main__":
    main()
