"""Theorem 2: margins of a client's model on its own examples, the bound on the test error, the optimal margins."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedskew.core.round import Update
from fedskew.diagnostics.kinds import KINDS, kinds, mean
from fedskew.diagnostics.outputs import outputs
from fedskew.diagnostics.values import plain
from fedskew.diagnostics.views import client_counts, client_examples, data_of, finite_update, local_model
from fedskew.losses import calibrated, on_examples
from fedskew.losses.counts import filled
from fedskew.simulation.records import Observation


def example_margins(logits: Tensor, labels: Tensor) -> Tensor:
    """d_y = f_y(x) - max_{i != y} f_i(x) of each example [N]; infinite if there is only one class."""
    own = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    others = logits.scatter(-1, labels.unsqueeze(-1), -math.inf).amax(-1)
    return own - others


def class_margins(logits: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """Smallest and mean margin [C] of each class, NaN for a class without examples.

    The theorem's d_y is the smallest: "the minimum distance of the data in class y to the decision boundary". It is
    negative as soon as one example is on the wrong side, where the bound says nothing; so the mean is given too.
    """
    found = {"minimum": logits.new_full((classes,), math.nan), "mean": logits.new_full((classes,), math.nan)}
    margins = example_margins(logits, labels)
    for c in labels.unique().tolist():
        of_class = margins[labels == c]
        found["minimum"][c], found["mean"][c] = of_class.min(), of_class.mean()
    return found


def bound_terms(margins: Tensor, counts: Tensor) -> Tensor:
    """1 / (d_y sqrt(n_y)) of each class, NaN where d_y is not positive or n_y is 0. The bound of a pair is the sum of
    two terms, up to the paper's constants."""
    terms = 1 / (margins * counts.to(margins).sqrt())
    return terms.masked_fill(~(margins > 0) | (counts <= 0), math.nan)


def offsets(counts: Tensor, tau: float, missing: str = "floor") -> Tensor:
    """tau n_y^(-1/4), what FedLC subtracts from each logit; a missing class counts as in its loss."""
    return tau * filled(counts, missing, torch.float64).pow(-0.25)


def pairwise_margins(counts: Tensor, tau: float, missing: str = "floor") -> Tensor:
    """The optimal margins Delta_(y,i) = tau (n_y^(-1/4) - n_i^(-1/4)) of all pairs [y, i]."""
    each = offsets(counts, tau, missing)
    return each.unsqueeze(-1) - each


def margins(seen: Observation, client_limit: int | None = None) -> dict[str, Any]:
    """Probe: theorem 2 for each client's updated model, on its own training examples."""
    update = finite_update(seen)
    if update is None:
        return {"margins": None}
    own = on_examples(seen.run.build_algorithm().loss)
    loss = own if isinstance(own, calibrated) else calibrated()
    counts = client_counts(seen, client_limit)
    rows = [_client(seen, update, k, counts[k], loss) for k in range(len(counts))]
    return {"margins": {"tau": loss.tau, "groups": _over_clients(rows), "clients": rows}}


def _client(seen: Observation, update: Update, k: int, counts: list[int], loss: calibrated) -> dict[str, Any]:
    """Pairs are sums of `term` and differences of `offset`; `bound` is the largest over pairs of classes held."""
    x, y = client_examples(seen, k)
    made = outputs(seen.model, local_model(seen, update, k), data_of(seen), x)
    n, found = torch.tensor(counts, device=y.device), class_margins(made.logits, y, len(counts))
    terms = {name: bound_terms(values, n) for name, values in found.items()}
    return {
        "client": int(seen.cohort.clients[k]),
        "counts": counts,
        **{name: plain(values) for name, values in found.items()},
        "term": {name: plain(values) for name, values in terms.items()},
        "bound": {name: plain(_largest(values[n > 0])) for name, values in terms.items()},
        "offset": plain(offsets(n, loss.tau, loss.missing)),
    }


def _largest(terms: Tensor) -> Tensor:
    """The sum of the two largest terms; NaN where there is one class only, or a class without a term."""
    return terms.sort(descending=True).values[:2].sum() if len(terms) > 1 else terms.new_tensor(math.nan)


def _over_clients(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean over pairs of a client and a class it holds."""
    groups = {}
    for kind in KINDS[:2]:
        pairs = [(row, c) for row in rows for c in kinds(row["counts"])[kind]]
        groups[kind] = {name: mean([row[name][c] for row, c in pairs]) for name in ("minimum", "mean")}
    return groups
