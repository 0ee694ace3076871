"""How far clients move apart in a round, what that does to the classifier, and what the model forgets."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedskew.core.reading import last_layer
from fedskew.core.round import Update
from fedskew.core.tree import Params
from fedskew.diagnostics.kinds import KINDS, kinds, mean
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import client_counts, data_of, evaluated, finite_update, global_model
from fedskew.simulation.records import Observation


def gram(deltas: Params) -> Tensor:
    """Inner products [K, K] of whole deltas with clients on their first axis, in float64."""
    flat = [leaf.double().flatten(1) if leaf.ndim > 1 else leaf.double().unsqueeze(-1) for leaf in deltas.values()]
    return torch.stack([leaf @ leaf.T for leaf in flat]).sum(0)


def cosines(products: Tensor) -> Tensor:
    """Cosine of the angle between each two vectors with these inner products; NaN for a zero vector."""
    norms = products.diagonal().sqrt()
    return products / (norms.unsqueeze(-1) * norms)


def spread(products: Tensor, weights: Tensor) -> dict[str, Any]:
    """Norms, cosines and diversity of deltas d_k with weights a_k that sum to 1.

    diversity = sum_k a_k |d_k|^2 / |sum_k a_k d_k|^2: 1 where all clients make the same update, K where K clients of
    equal weight make orthogonal ones. A client that did not move has no direction and is left out of the cosines.
    """
    toward, norms = products @ weights, products.diagonal().sqrt()
    squared = weights @ toward
    moved = norms > 0
    among = ~torch.eye(int(moved.sum()), dtype=torch.bool, device=products.device)
    apart = cosines(products[moved][:, moved])[among]
    low, high = (apart.min(), apart.max()) if len(apart) else (None, None)
    return {
        "norm": plain(norms),
        "mean_norm": plain(squared.sqrt()),
        "cosine_to_mean": plain(toward / (norms * squared.sqrt())),
        "cosine": {"mean": plain(apart.mean()), "min": plain(low), "max": plain(high)},
        "diversity": plain((weights @ products.diagonal()) / squared),
    }


def drift(seen: Observation) -> dict[str, Any]:
    """Probe: spread of the client deltas, the classifier's rows, and forgetting per class."""
    update = finite_update(seen)
    if update is None:
        return {"drift": None}
    weights = seen.cohort.weights(seen.run.weighting)
    products = gram(update.delta)
    before, after = (evaluated(seen, global_model(s)).per_class_accuracy for s in (seen.before, seen.after))
    return {
        "drift": {
            "clients": seen.cohort.clients.tolist(),
            **spread(products, (weights / weights.sum()).to(products)),
            "classifier": classifier_rows(seen, update),
            "forgetting": forgetting([before, after]),
        }
    }


def classifier_rows(seen: Observation, update: Update) -> dict[str, Any]:
    """|w_y| and b_y per class of the global model before and after the round, and |w_y| of each client's model.

    `groups` is the mean change of |w_y| and b_y in a local update, over all pairs of a client and a class of a kind.
    """
    weight, bias = last_layer(seen.model, *global_model(seen.before), data_of(seen))
    start = seen.before.params[weight].double().norm(dim=-1)
    norms = (seen.before.params[weight] + update.delta[weight]).double().norm(dim=-1)
    pushes = update.delta[bias].double() if bias in update.delta else None
    counts = client_counts(seen)
    shifts = None if pushes is None else _by_kind(pushes, counts)
    return {
        "before": _rows(seen.before.params, weight, bias),
        "after": _rows(seen.after.params, weight, bias),
        "client_norm": plain(norms),
        "groups": {"norm": _by_kind(norms - start, counts), "bias": shifts},
    }


def forgetting(history: Sequence[Sequence[float | None] | None]) -> list[float | None]:
    """Per class, how far the last accuracy is below the best earlier one: max_t a_t - a_T, at least 0."""
    known = [accuracies for accuracies in history if accuracies is not None]
    if len(known) < 2:
        return []
    columns = list(zip(*known, strict=True))
    return [_lost([value for value in column if value is not None]) for column in columns]


def _lost(values: Sequence[float]) -> float | None:
    return max(0.0, max(values) - values[-1]) if values else None


def _rows(params: Params, weight: str, bias: str) -> dict[str, Any]:
    found = params.get(bias)
    return {
        "norm": plain(params[weight].double().norm(dim=-1)),
        "bias": None if found is None else plain(found.double()),
    }


def _by_kind(values: Tensor, counts: Sequence[Sequence[int]]) -> dict[str, float | None]:
    """Means of values [K, C] over the pairs of each kind."""
    listed, groups = values.tolist(), [kinds(row) for row in counts]
    return {kind: plain(mean([listed[k][c] for k, of in enumerate(groups) for c in of[kind]])) for kind in KINDS}
