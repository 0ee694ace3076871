"""Figure 7: t-SNE of a majority, a minority and a missing class after a local update."""

from typing import Any

import numpy as np

from fedskew.paper.feature_map import choose_client_and_classes, features_after
from fedskew.paper.trained import METHODS, TrainedFigure
from fedskew.report.class_figures import feature_maps
from fedskew.simulation.simulation import Simulation


def features(simulation: Simulation) -> dict[str, Any]:
    federation = simulation.federation
    client, classes = choose_client_and_classes(federation.counts(np.arange(federation.num_clients)).tolist())
    return {method: features_after(simulation, client, classes, algorithm=method, local_epochs=1) for method in METHODS}


def words(measured: dict[str, Any]) -> list[str]:
    lines = [
        f"{method:8} {group['kind']:9} class {group['class']} ({group['count']} examples): "
        f"{100 * group['neighbours']:.1f} % of nearest neighbours are of the same class"
        for method, found in measured.items()
        for group in found["groups"]
    ]
    if set(METHODS) <= set(measured):
        pairs = zip(*(measured[method]["groups"] for method in METHODS), strict=True)
        told = [f"{plain['kind']} {100 * (mine['neighbours'] - plain['neighbours']):+.1f}" for plain, mine in pairs]
        lines.append(f"fedlc - fedavg, points of neighbours: {', '.join(told)}")
    return lines


FIGURE = TrainedFigure("figure7", "Features after a local update", "features", features, feature_maps, words)
runs, rows = FIGURE.runs, FIGURE.rows
