"""How far honest clients go, against what a federation's default limit expects of them: `python -m benchmarks.reach`.

Simulated runs with extreme skew of labels and sizes. The limit refuses a client whose norm is more than
`fedskew.flower.limits.MULTIPLE` times the expected one; this prints the largest multiple of each run.
"""

from collections.abc import Callable
from typing import Any

from fedskew import Run, simulate
from fedskew.core import tree
from fedskew.flower.limits import Move, Norms, expected_norm, learnt
from fedskew.simulation.plan import settings_of
from fedskew.simulation.records import Observation

TINY = "dirichlet:{},balance=off,min_size=1"
RUNS: tuple[dict[str, Any], ...] = (
    {"partition": "shards:1", "clients": 10},
    {"partition": TINY.format(0.05), "clients": 20, "clients_per_round": 3},
    {"partition": TINY.format(0.1), "clients": 50, "clients_per_round": 10, "momentum": 0.9, "local_epochs": 3},
    {"dataset": "synthetic:1,1", "clients": 30, "clients_per_round": 10},
)
ALGORITHMS = ("fedavg", "fedlc", "scaffold", "fedlc+scaffold", "fednova", "fedopt")


def watching() -> Callable[[Observation], dict[str, float]]:
    """A probe that gives the largest multiple of a round, by record."""
    earlier: Norms = {}

    def probe(seen: Observation) -> dict[str, float]:
        nonlocal earlier
        if seen.update is None:
            return {}
        sizes = seen.cohort.federation.sizes(seen.cohort.whole)
        steps = settings_of(seen.run, seen.cohort.federation.dataset.input_shape).steps(sizes)
        records = {"params": seen.update.delta, "message": seen.update.message}
        norms = {name: tree.norm(leaves, 1).tolist() for name, leaves in records.items() if leaves}
        moves = [Move(int(s), {name: norms[name][k] for name in norms}) for k, s in enumerate(steps)]
        found = {name: max(_multiples(name, moves, earlier), default=0.0) for name in norms}
        earlier = learnt(earlier, moves)
        return found

    return probe


def _multiples(name: str, moves: list[Move], earlier: Norms) -> list[float]:
    expected = [expected_norm(name, move, moves[:k] + moves[k + 1 :], earlier) for k, move in enumerate(moves)]
    return [move.norms[name] / most for move, most in zip(moves, expected, strict=True) if most]


def main() -> None:
    for fields in RUNS:
        for algorithm in ALGORITHMS:
            run = Run(
                **{"rounds": 100, "lr": 0.1, "batch_size": 32, "precision": "fp64", **fields}, algorithm=algorithm
            )
            rounds = [record.probes for record in simulate(run, [watching()])]
            most = {name: max(found.get(name, 0.0) for found in rounds) for name in rounds[-1]}
            shown = ", ".join(f"{name} {value:.1f}" for name, value in most.items())
            print(f"{run.title}, {run.short_algorithm}: {shown}", flush=True)


if __name__ == "__main__":
    main()
