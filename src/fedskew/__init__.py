"""Federated learning under label skew: FedLC and its rivals, defined once, run fast, measured honestly.

Beside the names of `__all__`, every registered method is here by its name: `from fedskew import fedlc, scaffold`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.algorithms import Algorithm, combine
    from fedskew.runs.run import Run
    from fedskew.runs.store import Store
    from fedskew.simulation import RoundRecord, simulate

__version__ = "0.1.0"

_HOMES = {
    "Algorithm": "fedskew.algorithms",
    "RoundRecord": "fedskew.simulation",
    "Run": "fedskew.runs.run",
    "Store": "fedskew.runs.store",
    "combine": "fedskew.algorithms",
    "simulate": "fedskew.simulation",
}

__all__ = ["Algorithm", "RoundRecord", "Run", "Store", "combine", "simulate"]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `fedskew --help` need not wait for torch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_") and find_spec(f"fedskew.{name}") is None:  # `from fedskew import tree` asks here first
        methods = import_module("fedskew.algorithms").ALGORITHMS
        if name in methods:
            return methods[name]
    raise AttributeError(f"module 'fedskew' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, *import_module("fedskew.algorithms").ALGORITHMS]
