"""Every part of every hole, for the contracts."""

from itertools import product

from fedskew.aggregators import Aggregate, normalized_mean, trimmed_mean, weighted_mean
from fedskew.corrections import Correction, control_variates, none, proximal
from fedskew.losses import Loss, adjusted, calibrated, cross_entropy, restricted
from fedskew.optimizers import Optimizer, adagrad, adam, sgd, yogi

MISSING = ("floor", "mask", "epsilon")
DENOMINATORS = ("all", "others")

LOSSES: dict[str, Loss] = {
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

CORRECTIONS: dict[str, Correction] = {
    "none": none(),
    "proximal-0": proximal(0.0),
    "proximal": proximal(0.3),
    "control_variates": control_variates(),
}

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": sgd(0.1),
    "sgd-momentum": sgd(0.1, 0.9),
    "sgd-decay": sgd(0.1, 0.0, 0.01),
    "sgd-both": sgd(0.1, 0.9, 0.01),
    "adagrad": adagrad(0.1),
    "adam": adam(0.1),
    "yogi": yogi(0.1),
}

AGGREGATORS: dict[str, Aggregate] = {
    "weighted_mean": weighted_mean(),
    "normalized_mean": normalized_mean(),
    "trimmed_mean": trimmed_mean(0.2),
}
