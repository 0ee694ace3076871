"""What robust aggregates cost where everybody is honest, and what they are worth where one client is not.

    python -m benchmarks.robust

Digits, 10 clients, 60 rounds, accuracy in percent, mean and range over three seeds. The attacker sends its update ten
times as long and backwards: farther would be refused by a federation's default limits.
"""

from dataclasses import replace

from fedskew import Run
from fedskew.core import tree
from fedskew.simulation.simulation import Simulation

PARTITIONS = ("iid", "dirichlet:0.3", "dirichlet:0.1", "shards:1")
ALGORITHMS = ("fedavg", "trimmed:share=0.1", "trimmed:share=0.2", "median", "fedlc", "fedlc+trimmed:share=0.1")
SEEDS = range(3)


def accuracy(run: Run, *, attacked: bool) -> float:
    """Of the last model, in percent; client 0 is the attacker."""
    simulation = Simulation(run)
    for round in range(1, run.rounds + 1):
        cohort = simulation.cohort(round)
        (update,) = simulation.engine.train(simulation.recipe(round), [simulation.server], [cohort], round)
        if attacked:
            update = replace(update, delta=tree.map(_backwards, update.delta))
        simulation.absorb(cohort, update)
    measured = simulation.evaluate(now=True)
    assert measured is not None
    return 100 * measured.accuracy


def _backwards(leaf):
    turned = leaf.clone()
    turned[0] *= -10
    return turned


def main() -> None:
    print("| partition | algorithm | all honest | one of ten attacks |\n| --- | --- | --- | --- |")
    for partition in PARTITIONS:
        for algorithm in ALGORITHMS:
            run = Run(partition=partition, algorithm=algorithm, clients=10, rounds=60, lr=0.1, weighting="uniform")
            cells = []
            for attacked in (False, True):
                found = [accuracy(run.model_copy(update={"seed": seed}), attacked=attacked) for seed in SEEDS]
                cells.append(f"{sum(found) / len(found):.1f} ({min(found):.1f} to {max(found):.1f})")
            print(f"| `{partition}` | `{algorithm}` | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
