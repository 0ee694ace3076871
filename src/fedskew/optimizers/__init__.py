"""Optimisers for both sides of the round: the client's local steps and the server's step along -delta."""

from collections.abc import Callable

from fedskew.optimizers.adaptive import adagrad, adam, yogi
from fedskew.optimizers.descent import SGD as sgd
from fedskew.optimizers.descent import Extrapolated as extrapolated
from fedskew.optimizers.descent import LookAhead as look_ahead
from fedskew.optimizers.optimizer import Optimizer

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adagrad": adagrad, "adam": adam, "yogi": yogi}

__all__ = ["OPTIMIZERS", "Optimizer", "adagrad", "adam", "extrapolated", "look_ahead", "sgd", "yogi"]
