"""Ways to run one definition of the round. Every engine agrees with `serial`."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from fedskew.data.augment import Augment
from fedskew.engine.serial import Serial
from fedskew.engine.stacked import Stacked
from fedskew.federation import Cohort
from fedskew.models import Model
from fedskew.round import Recipe, Server, Update


class Engine(Protocol):
    """Trains one cohort or several (seeds of one experiment), each from its own server state."""

    def train(
        self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int
    ) -> list[Update]: ...


ENGINES: dict[str, Callable[[int, int, torch.dtype, Augment | None], Engine]] = {"serial": Serial, "stacked": Stacked}
_SMALL = 100_000


def choose_engine(name: str, model: Model) -> tuple[str, str]:
    """The engine to use and why. `auto` stacks models without convolutions that are small enough to be all overhead."""
    if name != "auto":
        return name, "asked for"
    parameters = sum(leaf.numel() for leaf in model.module.parameters())
    if not model.stackable:
        return "serial", "the module has batch norm or dropout of its own"
    if any(isinstance(part, torch.nn.Conv2d) for part in model.module.modules()):
        return "serial", "a convolutional network keeps the processor busy one client at a time"
    if parameters > _SMALL:
        return "serial", f"{parameters:,} parameters keep the processor busy one client at a time"
    return "stacked", f"{parameters:,} parameters: the cohort runs as one tensor program"


__all__ = ["ENGINES", "Engine", "Serial", "Stacked", "choose_engine"]
