"""Ways to run one definition of the round. Every engine agrees with `serial` or refuses the run: our parts are tested
against it, and parts of the user's own are tried before the first round (trial.py).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from fedskew.core.dataset import Dataset
from fedskew.core.federation import Cohort
from fedskew.core.ranks import machine_share
from fedskew.core.round import Recipe, Server, Update
from fedskew.core.settings import Settings
from fedskew.engine.captured import served
from fedskew.engine.first_step import check_parts
from fedskew.engine.graphed import Graphed
from fedskew.engine.serial import Serial
from fedskew.engine.server_step import check_server_parts
from fedskew.engine.stacked import Stacked
from fedskew.engine.threaded import Threaded, cores
from fedskew.engine.trial import why_not
from fedskew.models import Model


class Engine(Protocol):
    """Trains one cohort or several (seeds of one experiment), each from its own server state."""

    def train(
        self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int
    ) -> list[Update]: ...


ENGINES: dict[str, Callable[[Settings], Engine]] = {
    "serial": Serial,
    "stacked": Stacked,
    "graphed": Graphed,
    "threaded": Threaded,
}
_SMALL = 100_000


def choose_engine(name: str, recipe: Recipe, server: Server, data: Dataset, precision: str = "fp32") -> tuple[str, str]:
    """The engine to use and why. A requested engine that cannot run the recipe is refused."""
    model, device, auto = recipe.model, data.x_train.device, name == "auto"

    def trouble_of(engine: str) -> str | None:
        return why_not(engine, recipe, server, data) if model.stackable else None

    wanted, reason = fastest_engine(model, device, precision) if auto else (name, "asked for")
    trouble = trouble_of(wanted)
    if trouble is None:
        return wanted, reason
    if not auto:
        raise ValueError(f"engine is {name!r}, but {trouble}; engine=serial runs it")
    one_by_one = wanted == "stacked" and device.type == "cuda" and model.quiet and trouble_of("graphed") is None
    return "graphed" if one_by_one else "serial", trouble


def fastest_engine(model: Model, device: torch.device, precision: str = "fp32") -> tuple[str, str]:
    """The engine for a model.

    The bound of 100,000 parameters is about where docs/performance.md puts the crossover on a CPU, for perceptrons and
    small clients; it was not measured on a GPU or for other clients.
    """
    if not model.stackable:
        return "serial", "the module has its own buffers or dropout"
    if model.size <= _SMALL and not model.convolutional:
        return "stacked", f"{model.size:,} parameters: the cohort runs as one tensor program"
    if served(model, precision, device):
        return "stacked", "our kernels run the layers of all clients together"
    busy = "a convolutional network" if model.convolutional else f"{model.size:,} parameters"
    if device.type == "cpu" and model.quiet and (cores() > 1 or machine_share() > 1):
        return "threaded", f"{busy}: one client per core, {cores()} cores"
    if device.type == "cuda" and model.quiet:
        return "graphed", f"{busy}: captured steps, several clients in flight"
    return "serial", f"{busy}: one client keeps the device busy"


__all__ = [
    "ENGINES",
    "Engine",
    "Graphed",
    "Serial",
    "Settings",
    "Stacked",
    "Threaded",
    "check_parts",
    "check_server_parts",
    "choose_engine",
    "fastest_engine",
]
