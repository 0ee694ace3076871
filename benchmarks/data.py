"""How long data sets take to load, and how much memory: `python -m benchmarks.data --json results/benchmark_data.json`.

Needs real files in FEDSKEW_DATA or data/; what is not there is left out. Each load has a process of its own: its peak
of resident memory is measured above that of a process that has only imported torch and the loader.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedskew.data.places import data_root

Row = dict[str, Any]
LIMITS: dict[str, dict[str, float]] = {
    "cifar10": {"seconds": 1, "peak_mb": 250},
    "svhn": {"seconds": 4},
    "imagenet12, first time": {"seconds": 30},
    "imagenet12, from the cache": {"seconds": 0.5},
    "dirichlet:0.1, 50,000 labels, 100 clients": {"seconds": 0.05},
}


def load(name: str) -> Row:
    """Load a data set in this process and say what it cost."""
    import warnings

    from fedskew.data import load_dataset

    warnings.simplefilter("ignore")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    made = load_dataset(name, 0, 20)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    stored = sum(x.numel() for x in (made.x_train, made.x_test))
    return {"seconds": seconds, "peak_mb": peak * 1024 / 1e6, "images_mb": stored / 1e6}


def apart(name: str) -> Row:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.data", "--one", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise FileNotFoundError(done.stderr.strip().splitlines()[-1])
    row: Row = json.loads(done.stdout)
    return row


def median(name: str, turns: int = 3) -> Row:
    rows = [apart(name) for _ in range(turns)]
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def split() -> Row:
    """Partition labels like CIFAR-10's."""
    import numpy as np
    import torch

    from fedskew.partition import dirichlet

    labels, seconds = torch.arange(10).repeat_interleave(5000), []
    for seed in range(20):
        began = time.perf_counter()
        dirichlet(0.1)(labels, 100, np.random.default_rng(seed))
        seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds), "slowest": max(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(load(arguments.one)))
        return
    rows: dict[str, Row] = {}
    for name in ("cifar10", "svhn"):
        try:
            rows[name] = median(name)
        except FileNotFoundError as error:
            print(f"left out: {error}")
    if (data_root() / "imagenet12" / "train").is_dir():
        shutil.rmtree(data_root() / "imagenet12" / ".fedskew-cache", ignore_errors=True)
        rows["imagenet12, first time"] = apart("imagenet12")
        rows["imagenet12, from the cache"] = median("imagenet12")
    rows["dirichlet:0.1, 50,000 labels, 100 clients"] = split()
    for name, row in rows.items():
        figures = "  ".join(f"{key} {value:.3g}" for key, value in row.items())
        limits = ", ".join(f"{key} at most {limit:g}" for key, limit in LIMITS[name].items())
        print(f"{name:44} {figures}   ({limits})")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
