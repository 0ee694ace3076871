"""How much memory a population takes, in a process of its own: `python -m benchmarks.memory CLIENTS ROUNDS`."""

import json
import resource
import sys

from benchmarks.clients import start
from fedskew import tree
from fedskew.simulation import Simulation, advance


def peak() -> int:
    """The most memory this process has held, in bytes (Linux counts in KiB, macOS in bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def trained(simulation: Simulation, rounds: int) -> Simulation:
    for _ in range(rounds):
        advance([simulation])
    return simulation


def main(clients: int, rounds: int) -> None:
    trained(start(1_000), 2)
    before = peak()
    simulation = trained(start(clients), rounds)
    data = simulation.federation.dataset
    held = {"data": sum(t.nbytes for t in (data.x_train, data.y_train, data.client_train)), "above": peak() - before}
    simulation = trained(start(clients, "scaffold"), rounds)
    seen, states = simulation.states.dump()
    model = tree.nbytes([simulation.server.params])
    print(json.dumps({**held, "seen": len(seen), "states": tree.nbytes([states]), "model": model}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
