"""This package: `python -m benchmarks.peers.ours CLIENTS ROUNDS OUT`."""

import time

from torch import nn

from benchmarks.clients import start
from benchmarks.peers.work import asked, tell
from benchmarks.sizes import CLASSES, FEATURES
from fedskew.simulation.simulation import advance


def main() -> None:
    file, rounds, out = asked()
    simulation, seconds = start(1_000), []
    for _ in range(rounds):
        began = time.perf_counter()
        advance([simulation])
        seconds.append(time.perf_counter() - began)
    linear = nn.Linear(FEATURES, CLASSES)
    linear.load_state_dict({name.removeprefix("linear."): leaf for name, leaf in simulation.server.params.items()})
    tell(out, seconds, linear, file)


if __name__ == "__main__":
    main()
