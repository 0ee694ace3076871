"""Many small clients: 40 to 60 examples of 60 features each, 10 classes."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.sizes import BATCH, CLASSES, COHORT, FEATURES, LR
from fedskew import Run
from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.simulation.simulation import Simulation


def small_clients(seed: int, clients: int) -> Dataset:
    """Every client holds about half of the classes, as it does under label skew."""
    generator = rng.stream(seed, "benchmark")
    sizes = generator.integers(40, 61, clients)
    owner = np.repeat(np.arange(clients), sizes)
    x = torch.from_numpy(generator.standard_normal((len(owner), FEATURES), dtype=np.float32))
    y = torch.from_numpy((owner + generator.integers(0, CLASSES // 2, len(owner))) % CLASSES)
    return Dataset("small_clients", x, y, x[:100], y[:100], CLASSES, client_train=torch.from_numpy(owner))


def start(
    clients: int, algorithm: str = "fedavg", engine: str = "stacked", cohort: int = COHORT, model: str = "logistic"
) -> Simulation:
    """A simulation that samples a cohort of clients a round for one epoch of batches of 10, and does not evaluate."""
    never = 10**9
    return Simulation(
        Run(
            dataset=f"{Path(__file__)}:small_clients",
            partition="natural",
            model=model,
            clients=clients,
            clients_per_round=cohort,
            algorithm=algorithm,
            batch_size=BATCH,
            lr=LR,
            rounds=never,
            eval_every=never,
            engine=engine,
        )
    )
