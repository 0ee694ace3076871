"""Federated learning under label skew: FedLC and its rivals, each defined once.

Besides the names in `__all__`, every registered method can be imported by name: `from fedskew import fedlc, scaffold`.
"""

import gc
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.algorithms import Algorithm, combine
    from fedskew.api import Compared, Simulated, Swept, TrainedModel, Tuned, compare, load_model, simulate, sweep, tune
    from fedskew.core.dataset import Dataset
    from fedskew.core.view import View
    from fedskew.corrections import Correction
    from fedskew.data.objects import as_dataset
    from fedskew.losses import AdjustedCrossEntropyLoss, CalibratedCrossEntropyLoss, cross_entropy
    from fedskew.models import Network
    from fedskew.runs.run import Run
    from fedskew.runs.store import Store
    from fedskew.simulation import RoundRecord

__version__ = "0.1.0"

__all__ = [
    "AdjustedCrossEntropyLoss",
    "Algorithm",
    "CalibratedCrossEntropyLoss",
    "Compared",
    "Correction",
    "Dataset",
    "Network",
    "RoundRecord",
    "Run",
    "Simulated",
    "Store",
    "Swept",
    "TrainedModel",
    "Tuned",
    "View",
    "as_dataset",
    "combine",
    "compare",
    "cross_entropy",
    "load_model",
    "simulate",
    "sweep",
    "tune",
]
"""All public names except the methods; docs/api.md describes each."""

_HOMES = {
    "AdjustedCrossEntropyLoss": "losses",
    "Algorithm": "algorithms",
    "CalibratedCrossEntropyLoss": "losses",
    "Correction": "corrections",
    "Dataset": "core.dataset",
    "Network": "models",
    "RoundRecord": "simulation",
    "Run": "runs.run",
    "Store": "runs.store",
    "View": "core.view",
    "as_dataset": "data.objects",
    "combine": "algorithms",
    "cross_entropy": "losses",
}
"""Modules of the public names that are not in `api`."""


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `fedskew --help` need not wait for torch."""
    if name in __all__:
        return getattr(_imported(f"fedskew.{_HOMES.get(name, 'api')}"), name)
    if not name.startswith("_") and find_spec(f"fedskew.{name}") is None:  # `from fedskew import tree` asks here first
        methods = _imported("fedskew.algorithms").ALGORITHMS
        if name in methods:
            return methods[name]
    raise AttributeError(f"module 'fedskew' has no attribute {name!r}")


def _imported(name: str) -> ModuleType:
    """A module, imported without looking for garbage: among torch's objects that takes as long as the import."""
    looking = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if looking:
            gc.enable()


def __dir__() -> list[str]:
    return [*globals(), *__all__, *import_module("fedskew.algorithms").ALGORITHMS]
