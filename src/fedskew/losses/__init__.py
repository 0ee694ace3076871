"""Local objectives. A loss is a pure function of a `View`, or of `(logits, labels, counts)` if it treats examples
separately."""

from fedskew.losses.adjustment import Adjusted as adjusted
from fedskew.losses.calibration import Calibrated as calibrated
from fedskew.losses.counts import check_labels
from fedskew.losses.criterion import AdjustedCrossEntropyLoss, CalibratedCrossEntropyLoss
from fedskew.losses.features import Decorrelation as decorrelation
from fedskew.losses.loss import Loss, OnExamples, as_loss, on_examples
from fedskew.losses.loss import OnLogits as on_logits
from fedskew.losses.restriction import Restricted as restricted
from fedskew.losses.softmax import cross_entropy
from fedskew.losses.teacher import Distillation as distillation
from fedskew.losses.travel import CalibratedByTravel as calibrated_by_travel
from fedskew.losses.vacant import Suppression as suppression
from fedskew.losses.vacant import prior_adjusted

__all__ = [
    "AdjustedCrossEntropyLoss",
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
    "on_examples",
    "on_logits",
    "prior_adjusted",
    "restricted",
    "suppression",
]
