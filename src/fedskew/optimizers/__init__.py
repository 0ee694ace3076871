"""Optimisers for both sides of the round: the client's local steps and the server's step along -delta."""

from collections.abc import Callable

from fedskew.optimizers.adaptive import adagrad, adam, yogi
from fedskew.optimizers.look_ahead import look_ahead
from fedskew.optimizers.optimizer import Optimizer
from fedskew.optimizers.sgd import sgd

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adagrad": adagrad, "adam": adam, "yogi": yogi}

__all__ = ["OPTIMIZERS", "Optimizer", "adagrad", "adam", "look_ahead", "sgd", "yogi"]
