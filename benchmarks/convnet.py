"""How fast convolutional clients train on a CPU: `python -m benchmarks.convnet [--json FILE] [--quick]`.

A round is one epoch of four clients with 512 CIFAR-size images each in batches of 128, McMahan's CNN, plain SGD. The
bare loop is what anybody writes without federated learning: one model over all the same images with every core.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from benchmarks.report import Neighbours, machine, show, write
from benchmarks.timing import Figure, interleaved, milliseconds, ratio
from fedskew import Run, rng
from fedskew.data.dataset import Dataset
from fedskew.engine.threaded import cores
from fedskew.simulation import Simulation, advance

CLIENTS, IMAGES, BATCH, LR = 4, 512, 128, 0.01
ROUND = f"{CLIENTS} clients x {IMAGES} images, McMahan's CNN"
BARE = "bare loop"


def images(seed: int, clients: int) -> Dataset:
    """Random images, as many for every client."""
    generator, count = rng.stream(seed, "benchmark"), clients * IMAGES
    x = torch.from_numpy(generator.standard_normal((count, 3, 32, 32), dtype=np.float32))
    y = torch.from_numpy(generator.integers(0, 10, count))
    owner = torch.arange(clients).repeat_interleave(IMAGES)
    return Dataset("images", x, y, x[:100], y[:100], 10, client_train=owner)


def start(engine: str, precision: str = "fp32") -> Simulation:
    never = 10**9
    return Simulation(
        Run(
            dataset=f"{Path(__file__)}:images",
            partition="natural",
            model="mcmahan",
            clients=CLIENTS,
            batch_size=BATCH,
            lr=LR,
            rounds=never,
            eval_every=never,
            engine=engine,
            precision=precision,
        )
    )


class Bare:
    """One model, torch.optim.SGD, contiguous tensors, every core on one batch at a time."""

    def __init__(self, data: Dataset) -> None:
        self.x, self.y = data.x_train, data.y_train
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 5),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 64, 5),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 5 * 5, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)

    def epoch(self) -> None:
        for index in torch.randperm(len(self.y)).split(BATCH):
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(self.x[index]), self.y[index]).backward()
            self.optimizer.step()


def check_same_work(bare: Bare, simulation: Simulation) -> None:
    """The bare model takes the package's parameters and gives the same logits: it is the same network."""
    names = [name for name, _ in bare.model.named_parameters()]
    params = simulation.server.params
    bare.model.load_state_dict(dict(zip(names, params.values(), strict=True)))
    with torch.no_grad():
        ours, _ = simulation.model.apply(params, simulation.server.buffers, bare.x[:BATCH], train=True)
        torch.testing.assert_close(bare.model(bare.x[:BATCH]), ours)


def measure(turns: int) -> list[Figure]:
    simulations = {engine: start(engine) for engine in ("serial", "threaded", "stacked")}
    simulations["threaded, bf16"] = start("threaded", "bf16")
    bare = Bare(simulations["serial"].federation.dataset)
    check_same_work(bare, simulations["serial"])
    tasks: dict[str, Callable[[], object]] = {BARE: bare.epoch}
    tasks |= {name: partial(advance, [simulation]) for name, simulation in simulations.items()}
    seconds = interleaved(tasks, turns, warm_up=1)
    limits = {"threaded": 0.85}
    return [
        *milliseconds(ROUND, seconds),
        *(Figure(ROUND, f"{name} / {BARE}", ratio(seconds, name, BARE), "x", limits.get(name)) for name in simulations),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convnet", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    options = parser.parse_args()
    torch.set_num_threads(cores())
    here, neighbours = machine(), Neighbours()
    figures = measure(3 if options.quick else 30)
    here["used elsewhere"] = neighbours.share()
    show(figures, here)
    if options.json:
        write(options.json, figures, {**here, "quick": options.quick})


if __name__ == "__main__":
    main()
