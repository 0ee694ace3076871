"""How far float32 engines end from `serial` on a CPU: `python -m benchmarks.parity [--json FILE]`.

Five rounds of the paper's CNN with batch norm; 4 clients share 300 random images of 3x32x32 by dirichlet:0.5, in
batches of 16. A distance is that of all parameters, in units of how far the model moved. How far `serial` in float32
ends from `serial` in float64 says what rounding alone does.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.methods import METHODS
from benchmarks.report import machine
from fedskew import Run
from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.core.tree import Params
from fedskew.simulation.simulation import Simulation, advance

EXAMPLES, CLIENTS, ROUNDS = 300, 4, 5


def images(seed: int, clients: int) -> Dataset:
    """CIFAR-sized random bytes with random labels."""
    generator = rng.stream(seed, "benchmark")
    x = torch.from_numpy(generator.integers(0, 256, (EXAMPLES, 3, 32, 32), dtype=np.uint8))
    y = torch.from_numpy(generator.integers(0, 10, EXAMPLES))
    return Dataset("images", x, y, x[:100], y[:100], 10, (125.3, 123.0, 113.9), (63.0, 62.1, 66.7))


def played(algorithm: str, engine: str, precision: str = "fp32") -> tuple[Params, Params]:
    """The parameters before the first and after the last round."""
    run = Run(
        dataset=f"{Path(__file__)}:images",
        partition="dirichlet:0.5",
        clients=CLIENTS,
        model="cnn",
        algorithm=algorithm,
        batch_size=16,
        rounds=ROUNDS,
        eval_every=10**6,
        engine=engine,
        precision=precision,
    )
    simulation = Simulation(run)
    first = simulation.server.params
    for _ in range(ROUNDS):
        advance([simulation])
    return first, simulation.server.params


def apart(a: Params, b: Params) -> float:
    return float(sum((a[name].double() - b[name].double()).square().sum() for name in a) ** 0.5)


def compare(algorithm: str) -> dict[str, str | float]:
    first, serial = played(algorithm, "serial")
    moved = apart(first, serial)
    others = {
        "threaded": played(algorithm, "threaded"),
        "stacked": played(algorithm, "stacked"),
        "serial, float64": played(algorithm, "serial", "fp64"),
    }
    return {
        "algorithm": algorithm,
        "moved": moved,
        **{name: apart(end, serial) / moved for name, (_, end) in others.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [compare(algorithm) for algorithm in METHODS]
    table = Table(*rows[0], title="from serial, as a share of the distance moved")
    for row in rows:
        table.add_row(*(f"{value:.2g}" if isinstance(value, float) else value for value in row.values()))
    Console(width=110).print(table)
    if options.json:
        options.json.write_text(json.dumps({**machine(), "rounds": ROUNDS, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
