"""Theorems 1 and 3 measured: n_j / n_r against D_jr, and the signs of Delta w_r . h^(r) and Delta w_j . h^(r)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedskew.core.reading import last_layer
from fedskew.diagnostics import bounds
from fedskew.diagnostics.kinds import kinds
from fedskew.diagnostics.outputs import Outputs, outputs
from fedskew.diagnostics.pairwise_margins import offsets, pairwise_margins
from fedskew.diagnostics.signs import summary
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import client_counts, client_examples, data_of, finite_update, global_model
from fedskew.losses import Loss, OnExamples, calibrated, on_examples
from fedskew.simulation.records import Observation

MOST = 5000


@dataclass(frozen=True)
class Measured:
    """The quantities of the theorems, for one client: matrices [j, r], and [y, r] for the two kinds of scores.

    `printed` is theorem 3 as printed and None for other losses; `moved` is Delta w_y . h^(r) of the client's whole
    local update, `step` that of one full-batch step.
    """

    bound: Tensor
    printed: Tensor | None
    moved: Tensor
    step: Tensor


def deviation(seen: Observation, client_limit: int | None = None) -> dict[str, Any]:
    """Probe: one row for each client, majority class j and minority or missing class r, and their summary.

    The summary covers all rows; at most `MOST` of them are kept, evenly spaced.

    Means h and p are those of the global model before the update, over the client's training examples; for a class
    that the client misses, over the test set, with n_j / n_r infinite (None). p is the softmax of the run's own loss.
    """
    update = finite_update(seen)
    if update is None:
        return {"deviation": None}
    algorithm, data, before = seen.run.build_algorithm(), data_of(seen), global_model(seen.before)
    loss = None if algorithm.terms else on_examples(algorithm.loss)
    if loss is None:
        return _not_a_softmax(algorithm.loss)
    test = outputs(seen.model, before, data, data.x_test)
    weight, _ = last_layer(seen.model, *before, data)
    rows = []
    for k, counts in enumerate(client_counts(seen, client_limit)):
        x, y = client_examples(seen, k)
        own = outputs(seen.model, before, data, x)
        moves = update.delta[weight][k].double()
        found = measure(loss, torch.tensor(counts, device=y.device), (own, y), (test, data.y_test), moves)
        if found is None:
            return _not_a_softmax(loss)
        rows += pairs(int(seen.cohort.clients[k]), counts, found)
    kept = rows[:: -(-len(rows) // MOST) or 1]
    left_out = len(rows) - len(kept)
    about = {"loss": _name(loss), "softmax": True, "summary": summary(rows), "left_out": left_out}
    return {"deviation": {**about, "pairs": kept}}


def _not_a_softmax(loss: Loss | OnExamples) -> dict[str, Any]:
    return {"deviation": {"loss": _name(loss), "softmax": False, "summary": None, "left_out": 0, "pairs": []}}


def measure(
    loss: OnExamples, counts: Tensor, own: tuple[Outputs, Tensor], test: tuple[Outputs, Tensor], moves: Tensor
) -> Measured | None:
    """The matrices of a client with these counts and updates `moves` [C, F] of its classifier's rows.

    `own` and `test` are outputs with labels; None for a loss that is not based on a softmax.
    """
    (made, labels), (seen, _) = own, test
    shares, elsewhere = (bounds.probabilities(loss, each.logits, counts) for each in (made, seen))
    if shares is None or elsewhere is None:
        return None

    def means(value: Callable[[Outputs, Tensor], Tensor]) -> Tensor:
        held, missing = (
            bounds.class_means(value(each, p), y, len(counts))
            for (each, y), p in zip((own, test), (shares, elsewhere), strict=True)
        )
        return torch.where(counts.unsqueeze(-1) > 0, held, missing)

    h, printed = means(lambda each, _: each.features), None
    if isinstance(loss, calibrated):
        taken = offsets(counts, loss.tau, loss.missing)
        delta = pairwise_margins(counts, loss.tau, loss.missing)
        printed = bounds.factored_bound(h, means(lambda each, _: bounds.printed_shares(each.logits, taken)), delta)
    step = bounds.step_scores(made.features, shares, labels, h, bounds.slopes(loss, counts))
    return Measured(bounds.deviation_bound(h, means(lambda _, p: p)), printed, moves @ h.T, step)


def pairs(client: int, counts: Sequence[int], found: Measured) -> list[dict[str, Any]]:
    """A row for each majority class j and minority or missing class r; `ratio` is n_j / n_r, None for infinite."""
    groups, rows = kinds(counts), []
    for kind in ("minority", "missing"):
        for r in groups[kind]:
            for j in groups["majority"]:
                rows.append({"client": client, "j": j, "r": r, "kind": kind, **_pair(counts, found, j, r)})
    return rows


def _pair(counts: Sequence[int], found: Measured, j: int, r: int) -> dict[str, Any]:
    ratio = counts[j] / counts[r] if counts[r] else math.inf
    printed = None if found.printed is None else found.printed[j, r].item()
    values = {
        "ratio": ratio,
        "bound": found.bound[j, r].item(),
        "printed": printed,
        "own": found.moved[r, r].item(),
        "other": found.moved[j, r].item(),
        "step_own": found.step[r, r].item(),
        "step_other": found.step[j, r].item(),
    }
    shown = {name: plain(value) for name, value in values.items()}
    known = all(shown[name] is not None for name in ("own", "other", "step_own", "step_other"))
    return {**shown, "bound": shown["bound"] if known else None}


def _name(loss: Loss | OnExamples) -> str:
    return str(getattr(loss, "__name__", type(loss).__name__)).lower()
