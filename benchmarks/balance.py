"""How skewed D(b) is with each way of balancing client sizes: `python -m benchmarks.balance --seeds 200`.

Labels are CIFAR-10's, 5,000 of each of ten classes; seeds are those of a run, so every split is one that
`fedskew inspect --dataset cifar10 --partition dirichlet:B,balance=...` shows.
"""

import argparse

import numpy as np
import torch

from fedskew.core import rng
from fedskew.partition import dirichlet, skew_indices

LABELS = torch.arange(50_000) % 10


def measure(b: float, balance: bool | str, clients: int, seeds: int) -> dict[str, float]:
    """Means over seeds: classes that a client holds, clients that hold a class (most and fewest), and skew."""
    splits = [dirichlet(b, balance)(LABELS, clients, rng.stream(seed, "partition")) for seed in range(seeds)]
    tables = [np.stack([np.bincount(LABELS[part], minlength=10) for part in parts]) for parts in splits]
    held = np.stack([table > 0 for table in tables])
    holders = held.sum(1).mean(0)
    skew = [skew_indices(table) for table in tables]
    return {
        "classes per client": held.sum(2).mean(),
        "holders of class 0": holders[0],
        "holders of class 9": holders[9],
        "effective classes": float(np.mean([each["effective_classes"] for each in skew])),
        "total variation": float(np.mean([each["mean_total_variation"] for each in skew])),
        "Gini of sizes": float(np.mean([each["size_gini"] for each in skew])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--b", type=float, default=0.1)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    rows = {name: measure(asked.b, how, asked.clients, asked.seeds) for name, how in WAYS.items()}
    print("| balance | " + " | ".join(rows["on"]) + " |\n| --- |" + " ---: |" * len(rows["on"]))
    for name, row in rows.items():
        print(f"| `{name}` | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |")


WAYS: dict[str, bool | str] = {"on": True, "fair": "fair", "off": False}

if __name__ == "__main__":
    main()
