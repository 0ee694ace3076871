"""The public Python interface: docs/api.md. No other room imports it."""

from fedskew.api.comparing import Compared, compare
from fedskew.api.simulated import Simulated, simulate
from fedskew.api.sweeping import Swept, sweep
from fedskew.api.trained import TrainedModel, load_model
from fedskew.api.tuning import Tuned, tune

__all__ = [
    "Compared",
    "Simulated",
    "Swept",
    "TrainedModel",
    "Tuned",
    "compare",
    "load_model",
    "simulate",
    "sweep",
    "tune",
]
