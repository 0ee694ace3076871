"""Which client and classes the paper's figure 7 shows, and their features after a local update."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedskew.diagnostics.feature_spread import feature_map
from fedskew.diagnostics.kinds import KINDS, kinds
from fedskew.diagnostics.observing import observe
from fedskew.simulation.simulation import Simulation

PRINTED = {"majority": 2608, "minority": 448, "missing": 0}
"""Training examples of the three classes in the paper's figure."""


def choose_client_and_classes(counts: Sequence[Sequence[int]]) -> tuple[int, dict[str, int]]:
    """The client, and its majority, minority and missing class, whose counts are nearest to the paper's.

    Smallest |ln(n_majority / 2608)| + |ln(n_minority / 448)| over all clients that have all three kinds; the missing
    class is the first one. Ties go to the first client and classes, so no result is looked at.
    """
    found = []
    for client, row in enumerate(counts):
        groups = kinds(row)
        if not all(groups.values()):
            continue
        for high in groups["majority"]:
            for low in groups["minority"]:
                distance = abs(math.log(row[high] / PRINTED["majority"])) + abs(
                    math.log(row[low] / PRINTED["minority"])
                )
                found.append((distance, client, high, low, groups["missing"][0]))
    if not found:
        raise ValueError("no client has a majority, a minority and a missing class")
    _, client, *classes = min(found)
    return client, dict(zip(KINDS, classes, strict=True))


def features_after(
    simulation: Simulation,
    client: int,
    classes: Mapping[str, int],
    *,
    algorithm: str | None = None,
    local_epochs: int | None = None,
    per_class: int = 200,
    keep_features: bool = False,
) -> dict[str, Any]:
    """`feature_map` of a client's model after the next local update, under the run's or another algorithm."""
    seen = observe(simulation, algorithm=algorithm, local_epochs=local_epochs, clients=np.array([client]))
    assert seen.update is not None
    return feature_map(seen, seen.update, 0, classes, per_class=per_class, keep_features=keep_features)
