"""Features of a majority, a minority and a missing class under a client's own model, in the plane (t-SNE)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedskew.core.dataset import Dataset
from fedskew.core.round import Update
from fedskew.diagnostics.kinds import kinds
from fedskew.diagnostics.outputs import outputs
from fedskew.diagnostics.views import about, client_counts, data_of, finite_update, local_model
from fedskew.simulation.records import Observation

_SEED, _PERPLEXITY, _NEIGHBOURS, _LEAST, _LARGEST = 0, 30.0, 10, 2, 1e15
Floats = NDArray[np.float64]


def features(seen: Observation, per_class: int = 200) -> dict[str, Any]:
    """Probe: `feature_map` of the client and classes that `choose` picks; None if there is nothing to draw."""
    update = finite_update(seen)
    if update is None:
        return {"features": None}
    data = data_of(seen)
    chosen = choose(client_counts(seen), torch.bincount(data.y_test, minlength=data.num_classes).tolist())
    if chosen is None:
        return {"features": None}
    try:
        return {"features": feature_map(seen, update, *chosen, per_class=per_class)}
    except OverflowError:
        return {"features": None}


def choose(counts: Sequence[Sequence[int]], drawable: Sequence[int]) -> tuple[int, dict[str, int]] | None:
    """A position in the cohort and one class of each kind there: largest majority, smallest minority, first missing.

    The client with the most kinds, then the most examples, then the first one. Classes have two test examples or more.
    """
    found = []
    for k, row in enumerate(counts):
        kept = {kind: [c for c in of if drawable[c] >= _LEAST] for kind, of in kinds(row).items()}
        pick = {"majority": max, "minority": min, "missing": min}
        best = {kind: pick[kind](of, key=row.__getitem__) for kind, of in kept.items() if of}
        found.append((len(best), sum(row), -k, best))
    most, _, k, best = max(found, key=lambda each: each[:3])
    return (-k, best) if most else None


def feature_map(
    seen: Observation, update: Update, k: int, classes: Mapping[str, int], *, per_class: int = 200
) -> dict[str, Any]:
    """t-SNE of the features of test examples under the k-th client's model after its local update.

    It uses the first `per_class` test examples of each class. `neighbours` is measured on the features themselves: the
    share of the ten nearest neighbours of an example that are of its own class, averaged per class.
    """
    data, counts = data_of(seen), client_counts(seen)[k]
    chosen = _test_examples(data, classes, per_class)
    made = outputs(seen.model, local_model(seen, update, k), data, data.x_test[torch.cat(list(chosen.values()))])
    values = made.features.cpu().numpy()
    if not (np.abs(values) < _LARGEST).all():
        raise OverflowError("features are too large to compute their distances")
    labels = np.repeat(np.arange(len(chosen)), [len(index) for index in chosen.values()])
    plane, share = embedded(values), own_neighbours(values, labels)
    groups = []
    for position, (kind, label) in enumerate(classes.items()):
        mine = labels == position
        near = round(float(share[mine].mean()), 3)
        group = {"kind": kind, "class": label, "count": counts[label], "neighbours": near}
        group["points"] = plane[mine].round(3).tolist()
        groups.append(group)
    client = int(seen.cohort.clients[k])
    return {**about(seen), "client": client, "feature_size": values.shape[1], "groups": groups}


def embedded(features: Floats) -> Floats:
    """t-SNE into the plane; fewer than 91 points have a smaller perplexity, and points that are all equal go to 0."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if (features == features[0]).all():
        return np.zeros((len(features), 2))
    if features.shape[1] == 1:
        features = np.pad(features, ((0, 0), (0, 1)))  # it starts from two principal components
    perplexity = min(_PERPLEXITY, max(1.0, (len(features) - 1) / 3))
    with threadpool_limits(1):  # its small parallel loops wait for each other and for torch's threads
        made = TSNE(2, perplexity=perplexity, init="pca", random_state=_SEED).fit_transform(features)
    return np.asarray(made, dtype=np.float64)


def own_neighbours(features: Floats, labels: NDArray[np.int64]) -> Floats:
    """For each example the share of its nearest neighbours that have its label."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(features) - 1)).fit(features).kneighbors()[1]
    return np.asarray((labels[near] == labels[:, None]).mean(1))


def _test_examples(data: Dataset, classes: Mapping[str, int], per_class: int) -> dict[str, Tensor]:
    chosen = {kind: (data.y_test == label).nonzero().flatten()[:per_class] for kind, label in classes.items()}
    for kind, index in chosen.items():
        if len(index) < _LEAST:
            raise ValueError(f"class {classes[kind]} has {len(index)} test examples; at least {_LEAST} are needed")
    return chosen
