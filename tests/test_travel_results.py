"""What docs/algorithms.md says of fedlc:travel is what results/travel holds."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from fedskew.runs.verdict import paired

ROOT = Path(__file__).parents[1]
DATA = ("synthetic:0,0", "synthetic:0.5,0.5", "synthetic:1,1", "digits")
METHODS = ("fedavg", "fedlc:tau=1", "fedlc", "fedlc:tau=2,travel=0.3", "fedlc:travel=1")


def found(lines: list[dict[str, Any]], dataset: str, algorithm: str, measure: str) -> dict[int, float]:
    """By seed, in percent."""
    chosen = [r for r in lines if (r["short"]["dataset"], r["short"]["algorithm"]) == (dataset, algorithm)]
    return {r["run"]["seed"]: 100 * r["summary"][measure] for r in chosen}


def published(*files: str) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in (ROOT / "results" / file).read_text().splitlines()]


@pytest.mark.parametrize("algorithm", METHODS)
def test_test_figures(algorithm: str) -> None:
    lines = published("travel/test.jsonl", "paper/synthetic.jsonl")
    cells = []
    for dataset in DATA:
        values = found(lines, dataset, algorithm, "accuracy_last10")
        assert sorted(values) == list(range(5))
        gain = paired(values, found(lines, dataset, "fedavg", "accuracy_last10"))
        assert gain is not None
        mean = f"{statistics.fmean(values.values()):.2f}"
        cells.append(mean if algorithm == "fedavg" else f"{mean}, {gain.mean:+.2f} {gain.interval}")
    row = f"| `{algorithm}` | {' | '.join(cells)} |"
    assert row in (ROOT / "docs/algorithms.md").read_text(), row


@pytest.mark.parametrize("tau", [2, 5])
@pytest.mark.parametrize("travel", [0.3, 1, 3])
def test_held_out_figures(tau: int, travel: float) -> None:
    lines = [r for r in published("travel/held_out.jsonl") if r["run"]["momentum"] == 0]
    assert all(r["run"]["validation"] == 0.1 and r["run"]["seed"] >= 100 for r in lines)
    name = f"fedlc:tau={tau},travel={travel:g}" if tau != 5 else f"fedlc:travel={travel:g}"
    cells = []
    for dataset in ("synthetic:1,1", "digits"):
        pair = [found(lines, dataset, each, "validation_accuracy") for each in (name, "fedavg")]
        gain = paired(*pair)
        assert gain is not None
        cells.append(f"{gain.mean:+.2f}")
    row = f"| {tau} | {travel:g} | {' | '.join(cells)} |"
    assert row in (ROOT / "docs/algorithms.md").read_text(), row


def test_cifar_figures() -> None:
    usual = {"momentum": 0.9, "rounds": 200, "validation": 0.0, "clients": 20}
    lines = [r for r in published("paper/cifar10_usual.jsonl") if usual.items() <= r["run"].items()]
    text = " ".join((ROOT / "docs/algorithms.md").read_text().split())
    for algorithm, name in (("fedavg", "FedAvg has"), ("fedlc", "FedLC"), ("fedlc:travel=1", "FedLC with travel 1")):
        cells = []
        for partition in ("dirichlet:0.05", "dirichlet:0.1", "shards:2"):
            cell = {"algorithm": algorithm, "partition": partition, "model": "cnn"}
            runs = [r for r in lines if cell.items() <= r["short"].items() and r["run"]["seed"] < 3]
            assert len(runs) == 3
            cells.append(f"{statistics.fmean(100 * run['summary']['accuracy_last10'] for run in runs):.2f}")
        assert "{} {}, {} and {} %".format(name, *cells) in text, cells


@pytest.mark.parametrize(("partition", "cell"), [("dirichlet:0.1", "D(0.1)"), ("shards:2", "Q(2)")])
@pytest.mark.parametrize(("profile", "momentum"), [("usual", 0.9), ("stated", 0.0)])
def test_held_out_figures_of_the_default(profile: str, momentum: float, partition: str, cell: str) -> None:
    lines = [r for r in published("travel/cifar10.jsonl") if r["short"]["partition"] == partition]
    runs = [r for r in lines if r["run"]["momentum"] == momentum and r["run"]["validation"] == 0.1]
    plain, travel = (found(runs, "cifar10", each, "validation_accuracy") for each in ("fedlc", "fedlc:travel=1"))
    assert plain.keys() == travel.keys() == {0, 1}
    cells = [f"{each[0]:.2f}, {each[1]:.2f}" for each in (plain, travel)]
    apart = ", ".join(f"{travel[seed] - plain[seed]:+.2f}" for seed in (0, 1))
    row = f"| `{profile}` | {cell} | {' | '.join(cells)} | {apart} |"
    assert row in (ROOT / "docs/algorithms.md").read_text(), row
