"""The public Python interface: docs/api.md. No other room imports it."""

from fedskew.api.comparing import Compared, compare
from fedskew.api.simulated import Simulated, simulate
from fedskew.api.trained import TrainedModel, load_model

__all__ = ["Compared", "Simulated", "TrainedModel", "compare", "load_model", "simulate"]
