"""The tables of readouts and of tries are made of runs."""

from dataclasses import dataclass, field
from typing import Any

from docs.pages import margins
from docs.pages.readouts import by_cell, table, tried


@dataclass
class Line:
    algorithm: str
    partition: str
    seed: int
    accuracy: float
    lr: float = 0.02
    dataset: str = "cifar10"
    rounds: int = 60
    short: dict[str, Any] = field(init=False)
    summary: dict[str, Any] = field(init=False)
    run: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.short = {"algorithm": self.algorithm, "partition": self.partition}
        self.summary = {"accuracy_last10": self.accuracy, "validation_accuracy": self.accuracy}
        self.run = {"lr": self.lr, "lr_schedule": "constant", "dataset": self.dataset, "partition": self.partition}
        self.run |= {"algorithm": f"{self.algorithm}:as=resolved", "validation": 0.1}


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


def test_tries_come_best_first_with_what_they_change():
    tries = [Line("refit", "shards:2", 0, 0.7, 0.01), Line("fedlc+refit", "shards:2", 0, 0.72, 0.03)]
    said, rows = tried(tries)
    assert "(Q(2), 60 rounds; one seed;" in said
    assert rows.splitlines()[2:] == ["| Q(2) | `fedlc+refit`, lr 0.03 | 72.0 |", "| Q(2) | `refit` | 70.0 |"]
    assert not list(tried([]))


def test_the_default_tau_is_compared_with_the_best_of_each_data_set():
    at = {"fedavg": 0.9, "fedlc": 0.8, "fedlc:tau=2": 0.85}
    tries = [Line(method, "dirichlet:0.1", 0, accuracy, dataset="svhn") for method, accuracy in at.items()]
    *_, rows, said = margins.section([*tries, Line("fedlc", "shards:20", 0, 0.4, dataset="cifar100:labels=fine")])
    assert rows.splitlines()[2:] == [
        "| cifar100 Q(20) | - | **40.00** | - |",
        "| svhn D(0.1) | 90.00 | 80.00 | **85.00** |",
    ]
    assert "The default, `fedlc:as=resolved`, was chosen" in list(margins.section(tries))[1]
    assert said.endswith("by 0.00 points at cifar100 Q(20) and 5.00 points at svhn D(0.1).")
    assert not list(margins.section([]))
