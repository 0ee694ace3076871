"""How fast the core is: `python -m benchmarks.core [--json FILE] [--quick]` prints a table and keeps every figure.

Whatever is compared takes turns in one process; a figure is a median with its quartiles, a ratio is one of medians.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.by_hand import Batched, OneByOne, plain_step, tuned_step
from benchmarks.clients import start
from benchmarks.timing import Figure, Spread, interleaved, milliseconds, ratio
from fedskew import Run
from fedskew.simulation import Simulation, advance, simulate_many

ROUND = "a round of logistic regression"
POPULATION = "a hundred times as many clients"
METHODS = "methods"
IMPORTS = "imports"
SEEDS = "five seeds of synthetic:1,1"
TOGETHER = "five seeds together"


def measure_round(turns: int) -> list[Figure]:
    """Sampling, shuffling, local steps and averaging; 100 of 1,000 clients of about 50 examples, batches of 10."""
    simulation = start(1_000)
    initial = simulation.server.params["linear.weight"], simulation.server.params["linear.bias"]
    tuned = Batched(simulation.federation, *initial, tuned_step)
    check_same_work(start(1_000), Batched(simulation.federation, *initial, tuned_step))
    check_same_work(start(1_000), Batched(simulation.federation, *initial, plain_step))
    tasks: dict[str, Callable[[], object]] = {
        "stacked": partial(advance, [simulation]),
        "by hand, tuned": tuned.round,
        "by hand, plain": Batched(simulation.federation, *initial, plain_step).round,
    }
    seconds = interleaved(tasks, turns)
    slow = interleaved(
        {
            "stacked": partial(advance, [simulation]),
            "client by client": OneByOne(simulation.federation, *initial).round,
            "serial": partial(advance, [start(1_000, engine="serial")]),
        },
        max(3, turns // 10),
        warm_up=1,
    )
    return [
        *milliseconds(ROUND, {**seconds, "client by client": slow["client by client"], "serial": slow["serial"]}),
        Figure(ROUND, "stacked / by hand, tuned", ratio(seconds, "stacked", "by hand, tuned"), "x", 2.5),
        Figure(ROUND, "stacked / by hand, plain", ratio(seconds, "stacked", "by hand, plain"), "x", 2.5),
        Figure(ROUND, "client by client / stacked", ratio(slow, "client by client", "stacked"), "x"),
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
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", str(clients), str(rounds)], capture_output=True, check=True
    )
    held = json.loads(told.stdout)
    return [
        *milliseconds(POPULATION, seconds),
        Figure(POPULATION, f"{many} / {few}", ratio(seconds, many, few), "x", 1.3),
        _exact(POPULATION, "data", held["data"] / 2**20, "MiB"),
        _exact(POPULATION, "peak memory above a small run / data", held["above"] / held["data"], "x", 1.3),
        _exact(POPULATION, f"clients seen in {rounds} rounds", held["seen"], ""),
        _exact(
            POPULATION,
            "scaffold's states / (clients seen x model)",
            held["states"] / (held["seen"] * held["model"]),
            "x",
            1.0,
        ),
    ]


def measure_methods(turns: int) -> list[Figure]:
    names = ("fedavg", "fedlc", "fedrs", "fedprox", "scaffold")
    tasks: dict[str, Callable[[], object]] = {name: partial(advance, [start(1_000, name)]) for name in names}
    seconds = interleaved(tasks, turns)
    ratios = [Figure(METHODS, f"{name} / fedavg", ratio(seconds, name, "fedavg"), "x") for name in names[1:]]
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
            figures.append(_exact(IMPORTS, "fedskew --help imports torch", torches, "times", 0.0))
        return figures


def measure_seeds(rounds: int) -> list[Figure]:
    """Records as `simulate_many` yields them, all 100 clients in every round, without evaluation.

    Together the seeds take as many steps as the one with the largest client, which is many times the smallest.
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
    return [
        *milliseconds(SEEDS, compared),
        *(Figure(SEEDS, f"{TOGETHER} / {name}", ratio(compared, TOGETHER, name), "x") for name in list(compared)[1:]),
    ]


def _ask(records: Iterator[object], count: int) -> None:
    assert len(list(islice(records, count))) == count


def _exact(part: str, name: str, value: float, unit: str, limit: float | None = None) -> Figure:
    return Figure(part, name, Spread(value, value, value), unit, limit)


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
    }


def show(figures: list[Figure], here: dict[str, object]) -> None:
    table = Table("", "median", "quartiles", "limit", title=f"{here['cpu']}, {here['threads']} threads, {here['date']}")
    for column in table.columns[1:]:
        column.justify = "right"
    part = ""
    for figure in figures:
        if figure.part != part:
            part = figure.part
            table.add_section()
            table.add_row(f"[bold]{part}")
        value = figure.value
        spread = "" if value.low == value.high else f"{_short(value.low)} to {_short(value.high)}"
        limit = "" if figure.limit is None else f"{figure.limit:g} {'kept' if figure.kept else 'MISSED'}"
        table.add_row(f"  {figure.name}", f"{_short(value.median)} {figure.unit}", spread, limit)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns and a population of 10,000: a minute or less")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    turns = 20 if options.quick else 200
    here = machine()
    figures = [
        *measure_round(turns),
        *measure_population(turns, 10_000 if options.quick else 100_000),
        *measure_methods(turns),
        *measure_imports(3 if options.quick else 9),
        *measure_seeds(3 if options.quick else 10),
    ]
    show(figures, here)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        document = {**here, "quick": options.quick, "figures": [figure.as_dict() for figure in figures]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
