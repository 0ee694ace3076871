"""Before, after and after aggregation, from a simulation that stands between two rounds (the paper's figures 2, 6)."""

from typing import Any

from fedskew.diagnostics.accuracy_by_class import local_effect
from fedskew.diagnostics.observing import observe
from fedskew.simulation.simulation import Simulation


def before_after(
    simulation: Simulation,
    *,
    algorithm: str | None = None,
    local_epochs: int | None = None,
    client_limit: int | None = None,
) -> dict[str, Any]:
    """`local_effect` of the next round, under the run's or another algorithm; the simulation is not changed."""
    seen = observe(simulation, algorithm=algorithm, local_epochs=local_epochs)
    assert seen.update is not None
    return local_effect(seen, seen.update, client_limit)
