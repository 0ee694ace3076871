"""How far clients drift apart in a round: a probe that is cheap enough for every round."""

from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.tree import Params

if TYPE_CHECKING:
    from fedskew.simulation.records import Observation


def drift_measures(seen: "Observation") -> dict[str, float | None]:
    """drift_norm = |sum_k a_k d_k| of the client deltas d_k with the server's weights a_k; drift_cosine = the mean
    cosine between the deltas of two clients, 1 if all move in one direction. None if no client answered or a delta is
    not finite; the cosine also if fewer than two clients moved."""
    if seen.update is None:
        return {"drift_norm": None, "drift_cosine": None}
    weights = seen.cohort.weights(seen.run.weighting)
    with torch.no_grad():
        return {
            "drift_norm": _finite(_length(seen.update.delta, weights / weights.sum())),
            "drift_cosine": mean_cosine(seen.update.delta),
        }


def mean_cosine(deltas: Params) -> float | None:
    """Over pairs j != k of the K clients that moved, from their unit vectors u_k: (|sum_k u_k|^2 - K) / (K (K - 1)).
    None for K < 2, which has no pair, and if a norm is not finite."""
    norms = tree.norm(deltas, 1).double()
    moved = int((norms > 0).sum())
    if moved < 2 or not norms.isfinite().all():
        return None
    units = torch.where(norms > 0, 1 / norms, 0.0)
    return _finite((_length(deltas, units).square() - moved) / (moved * (moved - 1)))


def _length(deltas: Params, coefficients: Tensor) -> Tensor:
    """|sum_k coefficients[k] * deltas[k]|"""
    coefficients = coefficients.to(tree.first(deltas).device)
    return tree.norm(tree.weighted_sum(deltas, coefficients), 0).double()


def _finite(value: Tensor) -> float | None:
    number = float(value)
    return number if isfinite(number) else None
