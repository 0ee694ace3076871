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
    short: dict[str, Any] = field(init=False)
    summary: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.short = {"algorithm": self.algorithm, "partition": self.partition}
        self.summary = {"accuracy_last10": self.accuracy}


RUNS = [
    *(Line("fedavg", "shards:2", seed, 0.3 + seed / 100) for seed in range(3)),
    *(Line("refit", "shards:2", seed, 0.7 + seed / 100) for seed in range(3)),
    *(Line("fedavg", "iid", seed, 0.8 + seed / 100) for seed in range(3)),
    *(Line("refit", "iid", seed, 0.85 + seed / 100) for seed in range(3)),
]


def test_accuracies_are_of_seeds():
    assert by_cell(RUNS)["shards:2"]["refit"] == {0: 70.0, 1: 71.0, 2: 72.0}


def test_a_cell_has_mean_difference_and_share():
    head, _, base, refit = table(RUNS).splitlines()
    assert head == "| method | Q(2) | IID |"
    assert base == "| `fedavg` | 31.0 | 81.0 |"
    assert refit.startswith("| `refit` | 71.0 (above, +40.00 [")
    assert "over 3 seeds; 80 %) | 86.0 (above, +5.00" in refit
