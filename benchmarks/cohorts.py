"""All clients in one launch (`stacked` with our kernels) against a client per stream (`graphed`), on one GPU.

    python3 -m benchmarks.cohorts --json results/benchmark_cohorts.json

A round of the paper's tables under the profile `usual`: 20 clients, 50,000 CIFAR-sized images, momentum 0.9, crops and
mirror images, bf16. The engines take turns. Each also says how far two rounds of it end from `serial` in fp32, as a
share of the way that `serial` moved, and `stacked` whether a second run repeats to the bit.
"""

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.costs import one_round, taken
from benchmarks.gpu import simulation
from fedskew.core import tree
from fedskew.core.tree import Params

ENGINES = ("stacked", "graphed")
FIELDS: dict[str, Any] = {"clients": 20, "momentum": 0.9, "augment": "crop_flip", "algorithm": "fedlc"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--models", nargs="+", default=["cnn", "mcmahan"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    fields = {**FIELDS, "dataset": f"random:examples={given.examples}", "device": given.device}
    rows = []
    for model in given.models:
        for partition in ("iid", "dirichlet:0.1"):
            rows.append(compared({**fields, "model": model, "partition": partition}, given.turns))
            print(json.dumps(rows[-1]), flush=True)
    if given.json:
        device = torch.cuda.get_device_name() if given.device == "cuda" else given.device
        date = datetime.now(UTC).isoformat(timespec="seconds")
        found = {"date": date, "device": device, "torch": torch.__version__, "turns": given.turns, "rounds": rows}
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def compared(fields: dict[str, Any], turns: int) -> dict[str, Any]:
    """Milliseconds of a round of each engine, how long its first round took, and how far it ends from `serial`."""
    start, end, _ = _moved(fields, "serial", "fp32")
    way = tree.sub(end, start)
    ends = {engine: _moved(fields, engine, "bf16") for engine in ENGINES}
    again = _moved(fields, "stacked", "bf16")[1]
    simulations = {engine: simulation(**fields, engine=engine, precision="bf16") for engine in ENGINES}
    seconds = taken({e: partial(one_round, each) for e, each in simulations.items()}, turns, time.perf_counter)
    return {
        "model": fields["model"],
        "partition": fields["partition"],
        "ms": {engine: round(1e3 * statistics.median(values), 1) for engine, values in seconds.items()},
        "first_round_s": {engine: round(found[2], 2) for engine, found in ends.items()},
        "apart": {engine: round(_norm(tree.sub(found[1], end)) / _norm(way), 4) for engine, found in ends.items()},
        "repeats": all(torch.equal(leaf, again[name]) for name, leaf in ends["stacked"][1].items()),
    }


def _moved(fields: dict[str, Any], engine: str, precision: str) -> tuple[Params, Params, float]:
    """The model before and after two rounds, and the seconds of the first."""
    each = simulation(**fields, engine=engine, precision=precision)
    start, began = tree.map(torch.clone, each.server.params), time.perf_counter()
    one_round(each)
    first = time.perf_counter() - began
    one_round(each)
    return start, tree.map(torch.clone, each.server.params), first


def _norm(leaves: Params) -> float:
    return float(tree.norm(leaves, 0))


if __name__ == "__main__":
    main()
