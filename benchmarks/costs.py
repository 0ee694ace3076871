"""What a round of a method costs, as a multiple of FedAvg's.

    python -m benchmarks.costs [--engine serial] [--model mcmahan] [--turns 10] [METHOD ...]

The round of benchmarks/convnet.py. Methods take turns, and each counts by its fastest one: the machine may have other
things to do. On a CPU that is time of the processor, on a GPU time that passes.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.convnet import BATCH, CLIENTS, LR
from fedskew import Run
from fedskew.simulation.simulation import Simulation, advance

BASE = "fedavg"
USUAL = ("fedntd", "fedntd:classes=vacant", "fedvls", "feddecorr", "fedlc", "fedlc:travel=1")
_NEVER = 10**9


def start(algorithm: str, engine: str, model: str, device: str, precision: str) -> Simulation:
    return Simulation(
        Run(
            dataset=f"{Path(__file__).with_name('convnet.py')}:images",
            partition="natural",
            model=model,
            algorithm=algorithm,
            clients=CLIENTS,
            batch_size=BATCH,
            lr=LR,
            rounds=_NEVER,
            eval_every=_NEVER,
            engine=engine,
            device=device,
            precision=precision,
        )
    )


def fastest(tasks: dict[str, Callable[[], object]], turns: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each task's fastest turn, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(1 + turns):
        for name, task in tasks.items():
            began = clock()
            task()
            seconds[name].append(clock() - began)
    return {name: min(values[1:]) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=USUAL)
    parser.add_argument("--engine", default="serial")
    parser.add_argument("--model", default="mcmahan")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--turns", type=int, default=10)
    given = parser.parse_args()
    known = given.engine, given.model, given.device, given.precision
    simulations = {name: start(name, *known) for name in (BASE, *given.methods)}
    tasks = {name: partial(_round, simulation) for name, simulation in simulations.items()}
    clock = time.process_time if given.device == "cpu" else time.perf_counter
    seconds = fastest(tasks, given.turns, clock)
    for name, value in seconds.items():
        print(f"{name:28s} {1e3 * value:9.1f} ms   {value / seconds[BASE]:.3f}", flush=True)


def _round(simulation: Simulation) -> None:
    advance([simulation])
    float(next(iter(simulation.server.params.values())).sum())  # wait for the device


if __name__ == "__main__":
    main()
