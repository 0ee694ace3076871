"""The full diagnosis of a stored run, from its last checkpoint, without training it further."""

from typing import Any

import torch

from fedskew.core.checks import check_number
from fedskew.diagnostics.accuracy_by_class import class_accuracy
from fedskew.diagnostics.at_home import alone, at_home
from fedskew.diagnostics.calibration_error import calibration_of
from fedskew.diagnostics.client_drift import drift, forgetting
from fedskew.diagnostics.deviation_bound import deviation
from fedskew.diagnostics.feature_spread import features
from fedskew.diagnostics.observing import from_folder, observe
from fedskew.diagnostics.pairwise_margins import margins
from fedskew.diagnostics.repairs import repairs
from fedskew.diagnostics.views import about, finite_update
from fedskew.losses import calibrated, cross_entropy, on_examples
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError
from fedskew.simulation.records import Observation

PLAIN, CALIBRATED = "fedavg", "fedlc"


def diagnose(
    folder: Folder, *, client_limit: int | None = None, by_themselves: bool = False, data_dir: str | None = None
) -> dict[str, Any]:
    """Make one local round from the checkpoint with the run's method, a plain and a calibrated one, and probe each that
    stays finite.

    `client_limit` limits how many clients are reported, except for drift, which covers the whole cohort. With
    `by_themselves` they are also trained without the federation, which takes as long as the run did.
    """
    if client_limit is not None:
        check_number("clients", client_limit, 1)
    stored = folder.run()
    absent = stored["device"].startswith("cuda") and not torch.cuda.is_available()
    simulation = from_folder(folder, "cpu" if absent else None, data_dir)
    own, *rivals = methods(simulation.run)
    views = {own: observe(simulation), **{name: observe(simulation, algorithm=name) for name in rivals}}
    first = views[own]
    calibration = calibration_of(first, simulation.server)
    if calibration is None:
        raise StoreError(f"run {folder.path.name} has diverged: its model's outputs are not finite")
    views = {name: seen for name, seen in views.items() if finite_update(seen) is not None}
    if own not in views:
        raise StoreError(f"run {folder.path.name} diverges in its next round, whose updates are what is looked at")
    looked = {name: _looked(seen, client_limit) for name, seen in views.items()}
    return {
        "run_hash": folder.path.name,
        **about(first),
        "round": simulation.round,
        "methods": looked,
        "at_home": {
            **at_home(views, looked, simulation.server, client_limit),
            "alone": alone(simulation, first, client_limit) if by_themselves else None,
        },
        "calibration": calibration,
        "repairs": repairs(first.model, simulation.server, simulation.federation),
        "forgetting": forgetting([record["per_class_accuracy"] for record in folder.records()[: simulation.round]]),
    }


def methods(run: Run) -> list[str]:
    """The run's own method first, then the plain and the calibrated loss unless one of them is its own."""
    algorithm = run.build_algorithm()
    loss = None if algorithm.terms else on_examples(algorithm.loss)
    rivals = ([] if loss is cross_entropy else [PLAIN]) + ([] if isinstance(loss, calibrated) else [CALIBRATED])
    return [run.short_algorithm, *rivals]


def _looked(seen: Observation, client_limit: int | None) -> dict[str, Any]:
    return {
        **class_accuracy(seen, client_limit),
        **deviation(seen, client_limit),
        **margins(seen, client_limit),
        **drift(seen),
        **features(seen),
    }
