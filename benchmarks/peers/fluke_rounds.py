"""fluke, one process: `python -m benchmarks.peers.fluke_rounds CLIENTS ROUNDS OUT`."""

import time

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from torch import nn

from benchmarks.peers.work import asked, clients, model, tell
from benchmarks.sizes import BATCH, CLASSES, COHORT, LR


class Clock:
    """Notes when each round begins and when its model is there."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def start_round(self, round: int, global_model: nn.Module) -> None:
        self.began = time.perf_counter()

    def end_round(self, round: int) -> None:
        self.seconds.append(time.perf_counter() - self.began)

    def __getattr__(self, event: str) -> object:
        return lambda **about: None


def main() -> None:
    file, rounds, out = asked()
    FlukeENV().set_eval_cfg(eval_every=10**9, server=False, locals=False, pre_fit=False, post_fit=False)
    linear, sgd = model(file), OptimizerConfigurator(DDict(name="SGD", lr=LR))
    loaders = [
        FastDataLoader(x, y, num_labels=CLASSES, batch_size=BATCH, shuffle=True, skip_singleton=False)
        for x, y in clients(file)
    ]
    held = [
        Client(index, loader, None, sgd, nn.CrossEntropyLoss(), local_epochs=1) for index, loader in enumerate(loaders)
    ]
    server, clock = Server(linear, None, held, weighted=True), Clock()
    federation = FedAVG(len(held), None, {}, clients=held, server=server)
    federation.attach(clock)
    federation.run(rounds, COHORT / len(held), finalize=False)
    tell(out, clock.seconds, linear, file)


if __name__ == "__main__":
    main()
