"""Every part of every hole, for the contracts. A registered method brings its parts by itself."""

from itertools import product
from typing import Any

from fedskew.aggregators import Aggregate
from fedskew.algorithms import ALGORITHMS, Algorithm, build_algorithm
from fedskew.corrections import Correction
from fedskew.losses import OnExamples, adjusted, calibrated, cross_entropy, on_examples, restricted
from fedskew.optimizers import OPTIMIZERS as KNOWN
from fedskew.optimizers import Optimizer, adagrad, adam, sgd, yogi

MISSING = ("floor", "mask", "epsilon")
DENOMINATORS = ("all", "others")

VARIANTS = (
    "fedprox:mu=0",
    "fedprox:mu=0.3",
    "scaffold:mean=uniform",
    "fedopt:server=adagrad",
    "fedopt:server=yogi",
    "fedopt:server=sgd,eta=0.5",
    "fedcm:alpha=1",
    "fedrs:alpha=0.3,mode=proportional",
    "fedlc:missing=mask",
    "fedlc:missing=epsilon,denominator=others",
    "fedlc:missing=mask,denominator=others,travel=0.5",
    "fedla:missing=mask",
    "fedntd:beta=0.3,T=2",
    "fedntd:classes=major",
    "fedntd:classes=vacant",
)
COMBINATIONS = (
    "fedlc+scaffold",
    "fedlc+fedavgm",
    "fedlc+fedprox+fednova",
    "fedcm+fedsam",
    "feddyn+fedsam",
    "fedlc+fedntd",
    "fedntd+feddecorr+scaffold",
)
METHODS: dict[str, Algorithm] = {text: build_algorithm(text) for text in (*ALGORITHMS, *VARIANTS, *COMBINATIONS)}


def fields_for(text: str) -> dict[str, Any]:
    """What a run of this method must have: a robust aggregate weighs all clients the same."""
    return {} if METHODS[text].aggregate.linear else {"weighting": "uniform"}


def _distinct(field: str) -> dict[str, Any]:
    """A part under the name of the first method that has it."""
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        part = getattr(method, field)
        if part not in found.values():
            found[name] = part
    return found


CORRECTIONS: dict[str, Correction] = _distinct("correction")
AGGREGATORS: dict[str, Aggregate] = _distinct("aggregate")

_GRID: dict[str, OnExamples] = {
    "cross_entropy": cross_entropy,
    **{
        f"calibrated-{tau}-{missing}-{denominator}": calibrated(tau, missing, denominator)
        for tau, missing, denominator in product((0.0, 1.0, 20.0), MISSING, DENOMINATORS)
    },
    **{f"adjusted-{tau}-{missing}": adjusted(tau, missing) for tau, missing in product((0.0, 1.0), MISSING)},
    **{
        f"restricted-{alpha}-{mode}": restricted(alpha, mode)
        for alpha, mode in product((0.0, 0.3, 1.0), ("binary", "proportional"))
    },
}
_FUNCTIONS = {name: on_examples(loss) for name, loss in _distinct("loss").items()}
_REGISTERED = {name: function for name, function in _FUNCTIONS.items() if function is not None}
LOSSES: dict[str, OnExamples] = {**_GRID, **_REGISTERED}

_CLIENTS: dict[str, Optimizer] = {
    "sgd": sgd(0.1),
    "sgd-momentum": sgd(0.1, 0.9),
    "sgd-decay": sgd(0.1, 0.0, 0.01),
    "sgd-both": sgd(0.1, 0.9, 0.01),
    "adagrad": adagrad(0.1),
    "adam": adam(0.1),
    "yogi": yogi(0.1),
}
assert {name.split("-")[0] for name in _CLIENTS} == set(KNOWN)
OPTIMIZERS: dict[str, Optimizer] = {**_CLIENTS, **_distinct("server")}
