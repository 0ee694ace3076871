"""Figure 2: accuracy per class before and after a local update, with the client's label counts."""

from typing import Any

from fedskew.diagnostics.kinds import KINDS
from fedskew.paper.local_effect import before_after
from fedskew.paper.trained import METHODS, TrainedFigure
from fedskew.report.class_figures import before_and_after
from fedskew.simulation.simulation import Simulation


def effects(simulation: Simulation) -> dict[str, Any]:
    """What one local epoch does under each method, from the same global model."""
    return {method: before_after(simulation, algorithm=method, local_epochs=1) for method in METHODS}


def words(measured: dict[str, Any]) -> list[str]:
    lines = []
    for method, effect in measured.items():
        for kind in KINDS:
            group = effect["groups"][kind]
            if group["before"] is not None:
                lines.append(
                    f"{method:8} {kind:9} {100 * group['before']:.2f} % before, {100 * group['after']:.2f} % after"
                )
        before, after, aggregated = (100 * effect["accuracy"][when] for when in ("before", "after", "aggregated"))
        lines.append(f"{method:8} all       {before:.2f} % before, {after:.2f} % after, {aggregated:.2f} % aggregated")
    return [*lines, *_ahead(measured)]


def _ahead(measured: dict[str, Any]) -> list[str]:
    """FedLC minus FedAvg, where the paper says that calibration helps: on missing classes, and after aggregation."""
    plain, calibrated = (measured.get(method) for method in METHODS)
    if not plain or not calibrated or plain["groups"]["missing"]["after"] is None:
        return []
    missing = 100 * (calibrated["groups"]["missing"]["after"] - plain["groups"]["missing"]["after"])
    together = 100 * (calibrated["accuracy"]["aggregated"] - plain["accuracy"]["aggregated"])
    return [f"fedlc - fedavg: {missing:+.2f} points on missing classes after the update, {together:+.2f} aggregated"]


FIGURE = TrainedFigure(
    "figure2", "Per-class accuracy before and after a local update", "local_effect", effects, before_and_after, words
)
runs, rows = FIGURE.runs, FIGURE.rows
