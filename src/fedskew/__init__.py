"""Federated learning under label skew: FedLC and its rivals, defined once, run fast, measured honestly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.algorithms import (
        Algorithm,
        combine,
        fedavg,
        fedavgm,
        fedla,
        fedlc,
        fednova,
        fedopt,
        fedprox,
        fedrs,
        median,
        scaffold,
        trimmed,
    )
    from fedskew.experiments.run import Run
    from fedskew.experiments.store import Store
    from fedskew.simulation import RoundRecord, simulate

__version__ = "0.1.0"

_HOMES = {
    "Run": "fedskew.experiments.run",
    "Store": "fedskew.experiments.store",
    "RoundRecord": "fedskew.simulation",
    "simulate": "fedskew.simulation",
}

__all__ = [
    "Algorithm",
    "RoundRecord",
    "Run",
    "Store",
    "combine",
    "fedavg",
    "fedavgm",
    "fedla",
    "fedlc",
    "fednova",
    "fedopt",
    "fedprox",
    "fedrs",
    "median",
    "scaffold",
    "simulate",
    "trimmed",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `fedskew --help` need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'fedskew' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "fedskew.algorithms")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
