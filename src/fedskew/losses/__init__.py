"""Local objectives. A loss is a pure function of a `View`, or of `(logits, labels, counts)` if it treats examples
separately."""

from fedskew.losses.adjustment import adjusted
from fedskew.losses.calibration import calibrated
from fedskew.losses.counts import check_labels
from fedskew.losses.criterion import CalibratedCrossEntropyLoss
from fedskew.losses.features import decorrelation
from fedskew.losses.loss import Loss, OnExamples, as_loss, on_logits, plain
from fedskew.losses.restriction import restricted
from fedskew.losses.softmax import cross_entropy
from fedskew.losses.teacher import distillation
from fedskew.losses.travel import calibrated_by_travel
from fedskew.losses.vacant import prior_adjusted, suppression

__all__ = [
    "CalibratedCrossEntropyLoss",
    "Loss",
    "OnExamples",
    "adjusted",
    "as_loss",
    "calibrated",
    "calibrated_by_travel",
    "check_labels",
    "cross_entropy",
    "decorrelation",
    "distillation",
    "on_logits",
    "plain",
    "prior_adjusted",
    "restricted",
    "suppression",
]
