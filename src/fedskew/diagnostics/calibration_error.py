"""How far the global model's confidence is from its accuracy, and which classes it takes for which."""

from typing import Any

import torch
from torch import Tensor

from fedskew.core.round import Server
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import data_of, on_test_set
from fedskew.simulation.records import Observation

BINS = 15


def reliability(logits: Tensor, labels: Tensor, bins: int = BINS) -> list[dict[str, Any]]:
    """Examples by their confidence max_y p_y(x) in bins of equal width: how many, mean confidence, accuracy.

    A bin without examples has no means. The last bin includes 1.
    """
    confidence, guess = logits.double().softmax(-1).max(-1)
    place = (confidence * bins).long().clamp(max=bins - 1)
    right = (guess == labels).double()
    counts = torch.bincount(place, minlength=bins)
    sums = (torch.bincount(place, weights=each, minlength=bins) for each in (confidence, right))
    means = [plain(each / counts) for each in sums]
    return [
        {"low": b / bins, "high": (b + 1) / bins, "count": n, "confidence": means[0][b], "accuracy": means[1][b]}
        for b, n in enumerate(counts.tolist())
    ]


def expected_error(curve: list[dict[str, Any]]) -> float:
    """The expected calibration error: ECE = sum_b n_b / n |accuracy_b - confidence_b|."""
    total = sum(row["count"] for row in curve)
    gaps = [row["count"] * abs(row["accuracy"] - row["confidence"]) for row in curve if row["count"]]
    return float(sum(gaps) / total)


def confusion(logits: Tensor, labels: Tensor) -> list[list[int]]:
    """How many examples of class (row) are taken for class (column)."""
    classes = logits.shape[-1]
    flat = torch.bincount(labels * classes + logits.argmax(-1), minlength=classes * classes)
    found: list[list[int]] = flat.reshape(classes, classes).tolist()
    return found


def calibration_of(seen: Observation, server: Server) -> dict[str, Any] | None:
    """A global model on the test set; `overconfidence` is mean confidence less accuracy. None if it is not finite."""
    labels, logits = data_of(seen).y_test, on_test_set(seen, server.used, server.buffers)
    if not bool(logits.isfinite().all()):
        return None
    curve = reliability(logits, labels)
    right, sure = (logits.argmax(-1) == labels).double(), logits.double().softmax(-1).amax(-1)
    return {
        "ece": plain(expected_error(curve)),
        "overconfidence": plain((sure - right).mean()),
        "reliability": curve,
        "confusion": confusion(logits, labels),
    }


def calibration(seen: Observation) -> dict[str, Any]:
    """Probe: calibration and confusion of the global model after aggregation."""
    return {"calibration": calibration_of(seen, seen.after)}
