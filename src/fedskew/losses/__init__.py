"""Local objectives. A loss is a pure function `(logits[..., B, C], labels[..., B], counts[..., C]) -> [..., B]`."""

from collections.abc import Callable

from torch import Tensor

from fedskew.losses.adjusted import adjusted
from fedskew.losses.calibrated import calibrated
from fedskew.losses.counts import check_labels
from fedskew.losses.criterion import CalibratedCrossEntropyLoss
from fedskew.losses.cross_entropy import cross_entropy
from fedskew.losses.restricted import restricted

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

__all__ = [
    "CalibratedCrossEntropyLoss",
    "Loss",
    "adjusted",
    "calibrated",
    "check_labels",
    "cross_entropy",
    "restricted",
]
