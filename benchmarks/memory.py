"""How much memory a population takes, in a process of its own: `python -m benchmarks.memory CLIENTS COHORT ROUNDS`."""

import json
import resource
import sys
from pathlib import Path

from benchmarks.clients import start
from fedskew.core import tree
from fedskew.simulation.simulation import Simulation, advance


def peak() -> int:
    """The most memory this program has held, in bytes. What the kernel says of a process includes its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def trained(simulation: Simulation, rounds: int) -> Simulation:
    for _ in range(rounds):
        advance([simulation])
    return simulation


def main(clients: int, cohort: int, rounds: int) -> None:
    trained(start(1_000), 2)
    before = peak()
    simulation = trained(start(clients, cohort=cohort), rounds)
    data = simulation.federation.dataset
    held = {
        "data": sum(t.nbytes for t in (data.x_train, data.y_train, data.client_train)),
        "peak": peak(),
        "above": peak() - before,
    }
    simulation = trained(start(clients, "scaffold", cohort=cohort), rounds)
    seen, states = simulation.states.dump()
    model = tree.nbytes([simulation.server.params])
    print(json.dumps({**held, "seen": len(seen), "states": tree.nbytes([states]), "model": model}))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
