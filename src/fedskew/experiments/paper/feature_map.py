"""Features of a majority, a minority and a missing class under a client's own model, in the plane (the paper's
figure 7)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.experiments.paper.local_effect import KINDS, LocalRound, kinds, local_round
from fedskew.simulation import Simulation

PRINTED = {"majority": 2608, "minority": 448, "missing": 0}
"""Training examples of the three classes in the paper's figure."""

_SEED, _PERPLEXITY, _NEIGHBOURS, _BATCH = 0, 30.0, 10, 256
Floats = NDArray[np.float64]


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
    """t-SNE of the features of test examples under the client's model after its local update.

    The first `per_class` test examples of each class are taken. `neighbours` is measured on the features themselves:
    the share of the ten nearest neighbours of an example that are of its own class, averaged per class.
    """
    clients = np.array([client])
    local = local_round(simulation, algorithm=algorithm, local_epochs=local_epochs, clients=clients)
    run, counts = local.simulation.run, simulation.federation.counts(clients)[0].tolist()
    chosen = _test_examples(simulation, classes, per_class)
    features = _features(local, torch.cat(list(chosen.values())))
    labels = np.repeat(np.arange(len(chosen)), [len(index) for index in chosen.values()])
    plane, share = embedded(features), own_neighbours(features, labels)
    groups = []
    for position, (kind, label) in enumerate(classes.items()):
        mine = labels == position
        group = {
            "kind": kind,
            "class": label,
            "count": counts[label],
            "neighbours": round(float(share[mine].mean()), 3),
        }
        group["points"] = plane[mine].round(3).tolist()
        if keep_features:
            group["features"] = features[mine].round(3).tolist()
        groups.append(group)
    names = simulation.federation.dataset.class_names
    return {
        "title": run.title,
        "dataset": run.short["dataset"],
        "algorithm": run.short_algorithm,
        "local_epochs": run.local_epochs,
        "seed": run.seed,
        "round": simulation.round,
        "client": client,
        "class_names": list(names) if names else None,
        "feature_size": features.shape[1],
        "groups": groups,
    }


def embedded(features: Floats) -> Floats:
    """t-SNE into the plane; a map of fewer than 91 points has a smaller perplexity."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_PERPLEXITY, max(1.0, (len(features) - 1) / 3))
    with threadpool_limits(1):  # its small parallel loops wait for one another, and for torch's threads
        made = TSNE(2, perplexity=perplexity, init="pca", random_state=_SEED).fit_transform(features)
    return np.asarray(made, dtype=np.float64)


def own_neighbours(features: Floats, labels: NDArray[np.int64]) -> Floats:
    """For each example the share of its nearest neighbours that have its label."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(features) - 1)).fit(features).kneighbors()[1]
    return np.asarray((labels[near] == labels[:, None]).mean(1))


def _test_examples(simulation: Simulation, classes: Mapping[str, int], per_class: int) -> dict[str, Tensor]:
    labels = simulation.federation.dataset.y_test
    chosen = {kind: (labels == label).nonzero().flatten()[:per_class] for kind, label in classes.items()}
    for kind, index in chosen.items():
        if len(index) < 2:
            raise ValueError(f"class {classes[kind]} has {len(index)} test examples; at least 2 are needed")
    return chosen


def _features(local: LocalRound, index: Tensor) -> Floats:
    simulation, (params, buffers) = local.simulation, local.model(0)
    data, model = simulation.federation.dataset, simulation.model
    with torch.no_grad():
        pieces = [
            model.features(params, buffers, data.prepare(data.x_test[piece], simulation.dtype))
            for piece in index.split(_BATCH)
        ]
    return torch.cat(pieces).flatten(1).double().cpu().numpy()
