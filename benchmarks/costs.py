"""What a round of a method costs, as a multiple of FedAvg's.

    python -m benchmarks.costs [--engine serial] [--model mcmahan] [--turns 10] [METHOD ...]
    python -m benchmarks.costs --paper --device cuda --engine graphed --precision bf16 --json FILE

The round of benchmarks/convnet.py, or with --paper that of the paper's tables under the profile `usual`: its CNN, 20
clients of 2,500 CIFAR-sized images, momentum 0.9, crops and mirror images. Methods take turns, and each counts by its
median and its fastest turn: the machine may have other things to do. On a CPU that is time of the processor, on a GPU
time that passes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.convnet import BATCH, CLIENTS, LR
from benchmarks.gpu import simulation
from fedskew.simulation.simulation import Simulation, advance

BASE = "fedavg"
USUAL = ("fedntd", "fedntd:classes=vacant", "fedvls", "feddecorr", "fedlc", "fedlc:travel=1")
PAPER: dict[str, Any] = {"model": "cnn", "clients": 20, "momentum": 0.9, "augment": "crop_flip", "partition": "iid"}
SMALL: dict[str, Any] = {
    "dataset": f"{Path(__file__).with_name('convnet.py')}:images",
    "partition": "natural",
    "clients": CLIENTS,
    "batch_size": BATCH,
    "lr": LR,
}


def taken(tasks: dict[str, Callable[[], object]], turns: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each task's turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(1 + turns):
        for name, task in tasks.items():
            began = clock()
            task()
            seconds[name].append(clock() - began)
    return {name: values[1:] for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=USUAL)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--examples", type=int, default=50_000, help="of --paper")
    parser.add_argument("--engine", default="serial")
    parser.add_argument("--model", help="mcmahan, with --paper cnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    fields = {**PAPER, "dataset": f"random:examples={given.examples}"} if given.paper else {"model": "mcmahan", **SMALL}
    fields |= {"engine": given.engine, "device": given.device, "precision": given.precision}
    fields |= {"model": given.model} if given.model else {}
    simulations = {name: simulation(**fields, algorithm=name) for name in (BASE, *given.methods)}
    tasks = {name: partial(one_round, each) for name, each in simulations.items()}
    clock = time.process_time if given.device == "cpu" else time.perf_counter
    seconds = taken(tasks, given.turns, clock)
    rows = {
        name: {"fastest": 1e3 * min(values), "median": 1e3 * statistics.median(values)}
        for name, values in seconds.items()
    }
    for name, row in rows.items():
        ratios = "  ".join(f"{row[key] / rows[BASE][key]:.3f}" for key in row)
        print(f"{name:28s} {row['fastest']:9.1f} {row['median']:9.1f} ms   {ratios}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"fields": fields, "turns": given.turns, "ms": rows}, indent=1) + "\n")


def one_round(each: Simulation) -> None:
    advance([each])
    float(next(iter(each.server.params.values())).sum())  # wait for the device


if __name__ == "__main__":
    main()
