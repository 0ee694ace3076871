"""Rounds on one GPU: ours against a plain loop over clients, the same work on both sides.

    python3 -m benchmarks.gpu --json results/benchmark_gpu.json

One round is 20 clients x 2,500 images of 3x32x32 (random bytes), batch 128, E=1, SGD. Times are medians of rounds in
steady state; compilation and capture are reported apart. `--profile` adds where one round's time goes.
"""

import argparse
import copy
import json
import platform
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.methods import METHODS
from fedskew import Run, data
from fedskew.core.dataset import Dataset
from fedskew.core.settings import arithmetic
from fedskew.simulation.simulation import Simulation, advance

Row = dict[str, Any]
RESNET: Row = {
    "model": "resnet18",
    "dataset": "random:examples=6000,side=64",
    "partition": "dirichlet:0.1",
    "momentum": 0.9,
    "augment": "crop_flip",
}
"""A round of the paper's ImageNet subset: 6,000 images of 64x64."""


def random_images(seed: int, clients: int, examples: int = 50_000, side: int = 32) -> Dataset:
    """CIFAR-sized bytes, or larger ones: what is timed does not depend on what they show."""
    generator = np.random.default_rng(seed)
    x = torch.from_numpy(generator.integers(0, 256, (examples + 1000, 3, side, side), dtype=np.uint8))
    y = torch.from_numpy(generator.integers(0, 10, examples + 1000))
    return Dataset("random", x[:-1000], y[:-1000], x[-1000:], y[-1000:], 10, (125.3, 123.0, 113.9), (63.0, 62.1, 66.7))


def random_features(seed: int, clients: int) -> Dataset:
    """1,000 clients of about 50 examples with 60 features."""
    generator = np.random.default_rng(seed)
    owner = torch.from_numpy(np.repeat(np.arange(clients), generator.integers(40, 61, clients)))
    x = torch.from_numpy(generator.normal(size=(len(owner), 60)).astype(np.float32))
    y = torch.from_numpy(generator.integers(0, 10, len(owner)))
    return Dataset("features", x, y, x[:100], y[:100], 10, client_train=owner, client_test=owner[:100])


def simulation(**fields: Any) -> Simulation:
    images, features = data.Usual(random_images, "cnn", "iid"), data.Usual(random_features, "logistic", "natural")
    data.USUAL |= {"random": images, "features": features}
    data.DATASETS |= {name: usual.load for name, usual in data.USUAL.items()}
    fields = {"dataset": "random", "device": "cuda", "rounds": 10**6, "eval_every": 10**6, **fields}
    return Simulation(Run(**fields))


def timed(work: Any, rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(1e3 * (time.perf_counter() - began))
    return seconds


def ours(rounds: int, **fields: Any) -> Row:
    """Our engine's time per round, and how long until it was warm."""
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    sim = simulation(**fields)
    warm = timed(lambda: advance([sim]), 3)
    times = timed(lambda: advance([sim]), rounds)
    return {
        "what": f"fedskew {sim.engine_name}",
        "model": fields["model"],
        "precision": sim.run.precision,
        "algorithm": sim.run.short_algorithm,
        "ms": statistics.median(times),
        "quartiles": statistics.quantiles(times, n=4)[::2] if len(times) > 3 else times,
        "warm_up_s": (sum(warm) - 3 * statistics.median(times)) / 1e3,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
    }


def plain_loop(model: str, precision: str, rounds: int) -> Row:
    """A loop over clients as people write it: a copy of the module and an optimiser for each, then the average."""
    sim = simulation(model=model, precision=precision)
    federation, everyone = sim.federation, np.arange(20)
    module = sim.model.module.to("cuda").train()
    x, y = federation.dataset.x_train, federation.dataset.y_train

    def one_round() -> None:
        states, weights = [], federation.sizes(everyone) / len(y)
        for index in federation.indices:
            local = copy.deepcopy(module)
            optimizer = torch.optim.SGD(local.parameters(), lr=0.01)
            for batch in index[torch.randperm(len(index))].to("cuda").split(128):
                optimizer.zero_grad()
                images = federation.dataset.prepare(x[batch], torch.float32)
                torch.nn.functional.cross_entropy(local(images), y[batch]).backward()
                optimizer.step()
            states.append(local.state_dict())
        average = {k: sum(w * s[k] for w, s in zip(weights, states, strict=True)) for k in states[0]}
        module.load_state_dict(average)

    with arithmetic(precision, torch.device("cuda")):
        timed(one_round, 1)
        times = timed(one_round, rounds)
    return {"what": "plain loop over clients", "model": model, "precision": precision, "ms": statistics.median(times)}


def bare_loop(model: str, precision: str, rounds: int) -> Row:
    """No federation at all: one model, the same number of the same batches."""
    sim = simulation(model=model, precision=precision)
    module: nn.Module = sim.model.module.to("cuda").train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    source = sim.federation.dataset

    def one_round() -> None:
        for index in sim.federation.indices:
            for batch in index[torch.randperm(len(index))].to("cuda").split(128):
                optimizer.zero_grad()
                images = source.prepare(source.x_train[batch], torch.float32)
                torch.nn.functional.cross_entropy(module(images), source.y_train[batch]).backward()
                optimizer.step()

    with arithmetic(precision, torch.device("cuda")):
        timed(one_round, 1)
        times = timed(one_round, rounds)
    return {"what": "bare centralised loop", "model": model, "precision": precision, "ms": statistics.median(times)}


def profile(**fields: Any) -> list[Row]:
    """Kernel times of one round; `graphed` has one client in flight, so that kernels do not overlap."""
    from torch.profiler import ProfilerActivity

    from fedskew.engine import Graphed

    torch._dynamo.reset()
    sim = simulation(**fields, precision="bf16")
    if isinstance(sim.engine, Graphed):
        sim.engine = Graphed(sim.engine.settings, slots=1)
    timed(lambda: advance([sim]), 3)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        advance([sim])
        torch.cuda.synchronize()
    kernels = [e for e in seen.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels.sort(key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in kernels)
    model = fields["model"]
    rows = [
        {"model": model, "kernel": e.key[:70], "ms": e.self_device_time_total / 1e3, "count": e.count}
        for e in kernels[:24]
    ]
    return [{"model": model, "kernel": "all", "ms": total / 1e3, "count": sum(e.count for e in kernels)}, *rows]


def parity(model: str, algorithm: str, rounds: int = 5) -> Row:
    """How far graphed ends from serial, in units of how far the model moved; and whether graphed repeats to the bit."""
    fields: Row = {
        "dataset": "random:examples=6000", "partition": "dirichlet:0.5", "clients": 8, "model": model,
        "algorithm": algorithm, "precision": "fp32",
    }  # fmt: skip
    ends = []
    for engine in ("serial", "graphed", "graphed"):
        torch._dynamo.reset()
        sim = simulation(**fields, engine=engine)
        start = sim.server.params
        for _ in range(rounds):
            advance([sim])
        ends.append(sim.server.params)

    def apart(a: Any, b: Any) -> float:
        return float(sum((a[k] - b[k]).double().square().sum() for k in a) ** 0.5)

    same = all(torch.equal(ends[1][k], ends[2][k]) for k in ends[1])
    moved = apart(ends[0], start)
    return {
        "model": model,
        "algorithm": algorithm,
        "rounds": rounds,
        "apart": apart(ends[1], ends[0]) / moved,
        "repeats": same,
    }


def table(rows: list[Row]) -> None:
    for row in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", default="rounds,methods,logistic,resnet,profile,parity")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    result: Row = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if "rounds" in parts:
        result["rounds"] = [ours(20, model=m, precision=p) for m in ("mcmahan", "cnn") for p in ("bf16", "tf32")]
        result["rounds"] += [loop(m, "bf16", 2) for m in ("mcmahan", "cnn") for loop in (plain_loop, bare_loop)]
    if "methods" in parts:
        names = ("fedavg", "fedlc", "fedrs", "fedprox", "scaffold")
        result["methods"] = [ours(20, model="cnn", precision="bf16", algorithm=name) for name in names]
    if "logistic" in parts:
        fields: Row = {"dataset": "features", "clients": 1000, "clients_per_round": 100, "batch_size": 10}
        result["logistic"] = [ours(50, model="logistic", precision="tf32", **fields)]
    if "resnet" in parts:
        result["resnet"] = [ours(10, **RESNET, precision="bf16")]
    if "profile" in parts:
        result["profile"] = [*profile(model="cnn"), *profile(**RESNET)]
    if "parity" in parts:
        result["parity"] = [parity("cnn", name) for name in METHODS] + [parity("mcmahan", "fedavg")]
    for part in parts:
        print(f"-- {part}")
        table(result[part])
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
