"""How fast convolutional clients train on a CPU: `python -m benchmarks.convnet [--json FILE] [--quick]`.

A round is one epoch of four clients with 512 CIFAR-size images each in batches of 128, McMahan's CNN, plain SGD. The
bare loop is what anybody writes without federated learning: one model over all the same images with every core. Each
contestant has a process of its own and they take turns.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from benchmarks.report import report
from benchmarks.timing import Figure, interleaved, milliseconds, ratio
from benchmarks.worker import serve, working
from fedskew import Run
from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.engine import threaded
from fedskew.simulation.simulation import Simulation, advance

CLIENTS, IMAGES, BATCH, LR = 4, 512, 128, 0.01
ROUND = f"{CLIENTS} clients x {IMAGES} images"
BARE, GIVEN_BACK = "bare loop", "threaded, memory given back"
ENGINES = {
    "serial": ("serial", "fp32"),
    "threaded": ("threaded", "fp32"),
    GIVEN_BACK: ("threaded", "fp32"),
    "stacked": ("stacked", "fp32"),
    "threaded, bf16": ("threaded", "bf16"),
}


def images(seed: int, clients: int) -> Dataset:
    """Random images, as many for every client."""
    generator, count = rng.stream(seed, "benchmark"), clients * IMAGES
    x = torch.from_numpy(generator.standard_normal((count, 3, 32, 32), dtype=np.float32))
    y = torch.from_numpy(generator.integers(0, 10, count))
    owner = torch.arange(clients).repeat_interleave(IMAGES)
    return Dataset("images", x, y, x[:100], y[:100], 10, client_train=owner)


def start(engine: str, precision: str = "fp32", model: str = "mcmahan") -> Simulation:
    never = 10**9
    return Simulation(
        Run(
            dataset=f"{Path(__file__)}:images",
            partition="natural",
            model=model,
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
        torch.testing.assert_close(bare.model(bare.x[:BATCH]), ours.logits)


def work(name: str, model: str) -> None:
    """What a contestant does in its process."""
    if name == GIVEN_BACK:
        threaded.keep_memory = lambda: None
    simulation = start(*ENGINES.get(name, ("serial", "fp32")), model)
    one_round = Bare(simulation.federation.dataset).epoch if name == BARE else partial(advance, [simulation])
    serve(one_round)


def measure(turns: int, model: str) -> list[Figure]:
    simulation = start("serial", model=model)
    names, pairs = ["threaded", GIVEN_BACK], [("threaded", GIVEN_BACK)]
    if model == "mcmahan":
        check_same_work(Bare(simulation.federation.dataset), simulation)
        names, pairs = [BARE, *ENGINES], pairs + [(name, BARE) for name in ENGINES]
    commands = {name: ["benchmarks.convnet", "--work", name, "--model", model] for name in names}
    with working(commands) as workers:
        seconds = interleaved(workers, turns, warm_up=1)
    part, limits = f"{ROUND}, {model}", {("threaded", BARE): 0.85}
    return [
        *milliseconds(part, seconds),
        *milliseconds(part, {f"{name}: processor time": worker.processor[1:] for name, worker in workers.items()}),
        *milliseconds(part, {f"{name}: of it the system's": worker.system[1:] for name, worker in workers.items()}),
        *(Figure(part, f"{a} / {b}", ratio(seconds, a, b), "x", limits.get((a, b))) for a, b in pairs),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convnet", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--model", default="mcmahan", help="of another one, only what keeping memory is worth")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(threaded.cores())
    if options.work:
        work(options.work, options.model)
        return
    report(lambda: measure(3 if options.quick else 30, options.model), options.json, quick=options.quick)


if __name__ == "__main__":
    main()
