"""Which clients take part in a round, the same in a simulation and in a real federation."""

import numpy as np

from fedskew import rng
from fedskew.experiments.run import Run
from fedskew.federation import Ints


def sampled_clients(run: Run, round: int) -> Ints:
    """The clients that are sampled and answer, in ascending order."""
    sampled = np.arange(run.clients)
    if run.clients_per_round < run.clients:
        chosen = rng.stream(run.seed, "cohort", round).choice(run.clients, run.clients_per_round, replace=False)
        sampled = np.sort(chosen)
    if run.dropout_rate:
        sampled = sampled[rng.uniform(rng.key(run.seed, "answer", round, sampled)) >= run.dropout_rate]
    return sampled
