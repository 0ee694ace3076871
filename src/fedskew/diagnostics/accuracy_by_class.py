"""What one local update does to a global model: accuracy per class before it, after it, and after aggregation."""

from collections.abc import Sequence
from typing import Any

from fedskew.core.round import Update
from fedskew.diagnostics.kinds import KINDS, kinds, mean
from fedskew.diagnostics.views import about, client_counts, evaluated, finite_update, global_model, local_model
from fedskew.simulation.records import Observation


def class_accuracy(seen: Observation, client_limit: int | None = None) -> dict[str, Any]:
    """Probe: accuracy by class before and after the local updates (`local_effect`); None without a finite update."""
    update = finite_update(seen)
    return {"class_accuracy": None if update is None else local_effect(seen, update, client_limit)}


def local_effect(seen: Observation, update: Update, client_limit: int | None = None) -> dict[str, Any]:
    """Accuracy per class of the global model, of each client's model after its local update, and after aggregation.

    The whole cohort is aggregated; `client_limit` limits how many clients are reported. `mean_after` and `groups` are
    over the reported clients.
    """
    before, after = (evaluated(seen, global_model(server)) for server in (seen.before, seen.after))
    counts = client_counts(seen, client_limit)
    rows = [_client(seen, update, k, counts[k], before.per_class_accuracy) for k in range(len(counts))]
    return {
        **about(seen),
        "before": before.per_class_accuracy,
        "aggregated": after.per_class_accuracy,
        "mean_after": [mean(column) for column in zip(*(row["after"] for row in rows), strict=True)],
        "accuracy": {
            "before": before.accuracy,
            "after": mean([row["accuracy"] for row in rows]),
            "aggregated": after.accuracy,
        },
        "groups": _over_clients(rows, before.per_class_accuracy, after.per_class_accuracy),
        "clients": rows,
    }


def _client(seen: Observation, update: Update, k: int, counts: list[int], before: list[float | None]) -> dict[str, Any]:
    measured = evaluated(seen, local_model(seen, update, k))
    after = measured.per_class_accuracy
    return {
        "client": int(seen.cohort.clients[k]),
        "counts": counts,
        "accuracy": measured.accuracy,
        "after": after,
        "groups": {
            kind: {
                "classes": members,
                "before": mean([before[c] for c in members]),
                "after": mean([after[c] for c in members]),
            }
            for kind, members in kinds(counts).items()
        },
    }


def _over_clients(
    rows: Sequence[dict[str, Any]], before: list[float | None], aggregated: list[float | None]
) -> dict[str, Any]:
    """Mean accuracies of each kind over all pairs of a client and a class of that kind."""
    groups = {}
    for kind in KINDS:
        pairs = [(row, c) for row in rows for c in row["groups"][kind]["classes"]]
        groups[kind] = {
            "pairs": len(pairs),
            "before": mean([before[c] for _, c in pairs]),
            "after": mean([row["after"][c] for row, c in pairs]),
            "aggregated": mean([aggregated[c] for _, c in pairs]),
        }
    return groups
