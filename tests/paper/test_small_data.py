"""The page of every method on digits: from results made up, and as it is published."""

from pathlib import Path

import pytest

from docs.pages import small_data
from fedskew.data import load_dataset
from fedskew.runs.results import Result, read_lines
from fedskew.runs.run import Run
from fedskew.runs.verdict import MEASURE

ROOT = Path(__file__).parents[2]


def lines(accuracies: dict[tuple[str, str], list[float | None]], momentum: float = 0.0) -> list[Result]:
    """Finished runs, by method and split; None for one that diverged."""
    found = []
    for (method, split), each in accuracies.items():
        for seed, value in enumerate(each):
            run = Run(dataset="digits", partition=split, algorithm=method, momentum=momentum, rounds=60, seed=seed)
            summary = {MEASURE: value, "diverged": value is None}
            found.append(Result(run.hash, 1, run.model_dump(), run.short, summary, [], []))
    return found


MADE = {
    ("fedavg", "iid"): [0.9, 0.9, 0.91],
    ("fedavg", "shards:2"): [0.8, 0.8, 0.81],
    ("fedlc", "iid"): [0.9, 0.9, 0.9],
    ("fedlc", "shards:2"): [0.85, 0.85, 0.86],
    ("fedrs", "iid"): [0.9, 0.9, 0.9],
    ("fedrs", "shards:2"): [0.7, 0.7, None],
}


def test_gains_are_over_fedavg_trained_alike_and_the_best_comes_first() -> None:
    other = {key: [0.5, 0.5, 0.5] for key in MADE}
    text = small_data.page([*lines(MADE), *lines(other, 0.9)])
    plain, momentum = text.split("## With ")[1:]
    rows = [row for row in plain.splitlines() if row.startswith("|")]
    assert rows[0] == "| method | Q(2) | IID |", "skewed splits first"
    assert rows[2] == "| `fedavg` | 80.3 | 90.3 |"
    assert rows[3].startswith("| `fedlc` | 85.3 (+5.00 [+5.00, +5.00] above) | 90.0 (-0.33 ")
    assert rows[4].startswith("| `fedrs` | 70.0, 1 diverged (-10.00 ")
    assert "its accuracy minus that on IID data: -10.0 at Q(2) points." in plain
    assert "FedLC against FedAvg: above in Q(2) (+5.0 points). Above FedAvg on every skewed split: `fedlc`." in plain
    assert momentum.startswith("momentum 0.9\n")
    assert "Above FedAvg on every skewed split: no method." in momentum
    assert "With 8 comparisons" in text


def test_the_readme_has_fedlc_on_skewed_splits_with_momentum() -> None:
    (gain,) = small_data.with_momentum(lines(MADE, 0.9))
    assert gain.mean == pytest.approx(5.0)
    assert small_data.with_momentum(lines(MADE)) == []


def test_what_the_page_says_of_the_data_is_so() -> None:
    data = load_dataset("digits", 0, 20)
    assert (len(data.y_train) + len(data.y_test), len(data.y_test)) == (1797, 355)


def test_the_command_does_the_published_runs() -> None:
    published = [one for file in (ROOT / "results" / "digits").glob("*.jsonl") for one in read_lines(file)]
    command = " ".join(small_data.COMMAND)
    methods = [name for word in command.split("--algorithm ")[1:] for name in word.split(" ")[0].split(",")]
    found = small_data.ways(published)
    assert [set(of) for at in found.values() for of in at.values()] == [set(methods)] * 8
    assert {len(seeds) for at in found.values() for of in at.values() for seeds in of.values()} == {5}
    first = Run(dataset="digits", partition="dirichlet:0.1", clients=20, rounds=60, lr=0.1, batch_size=16)
    assert first.hash in {one.hash for one in published}
