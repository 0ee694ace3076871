"""The table of readouts is made of runs."""

from dataclasses import dataclass, field
from typing import Any

from docs.pages.readouts import by_cell, table


@dataclass
class Line:
    algorithm: str
    partition: str
    seed: int
    accuracy: float
    lr: float = 0.02
    short: dict[str, Any] = field(init=False)
    summary: dict[str, Any] = field(init=False)
    run: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.short = {"algorithm": self.algorithm, "partition": self.partition}
        self.summary, self.run = {"accuracy_last10": self.accuracy}, {"lr": self.lr}


RUNS = [
    *(Line("fedavg", "shards:2", seed, 0.3 + seed / 100) for seed in range(3)),
    *(Line("refit", "shards:2", seed, 0.7 + seed / 100) for seed in range(3)),
    *(Line("refit", "shards:2", seed, 0.5, 1e-9) for seed in range(3)),
    *(Line("fedavg", "iid", seed, 0.8 + seed / 100) for seed in range(3)),
    *(Line("refit", "iid", seed, 0.95 + seed / 100) for seed in range(3)),
    *(Line("refit", "iid", seed, 0.51, 1e-9) for seed in range(3)),
]


def test_accuracies_are_of_seeds_and_untrained_models_stand_apart():
    found = by_cell(RUNS)["shards:2"]
    assert found["`refit`"] == {0: 70.0, 1: 71.0, 2: 72.0}
    assert found["`refit`, untrained features"] == {0: 50.0, 1: 50.0, 2: 50.0}


def test_a_cell_has_mean_spread_and_both_shares():
    """From 31: 40 of 50 points to FedAvg's 81, and 40 of 65 to its own 96."""
    head, _, base, refit, untrained = table(RUNS).splitlines()
    assert head == "| method | Q(2) | IID |"
    assert base == "| `fedavg` | 31.0 ± 1.0 | 81.0 ± 1.0 |"
    assert refit == "| `refit` | 71.0 ± 1.0 (80 %, 62 %) | 96.0 ± 1.0 |"
    assert untrained == "| `refit`, untrained features | 50.0 ± 0.0 (38 %, 95 %) | 51.0 ± 0.0 |"
