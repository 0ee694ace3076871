"""FedLC for clients that travel: calibrated in proportion to how far the client's optimiser moves in the round.

    tau_k = tau * min(1, travel_k / travel)        travel_k: the path of its optimiser under a constant unit gradient

Before the first local step the clients' plain gradients average to the gradient of the global loss, so label skew does
harm only to the extent that clients then move apart; a calibrated loss changes them from the first step.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedskew.core.checks import check_number
from fedskew.core.view import View
from fedskew.losses.calibration import Calibrated
from fedskew.losses.softmax import at_least_float32


@dataclass(frozen=True)
class CalibratedByTravel:
    """`travel` is the distance at which tau reaches its full value: near 0 this is FedLC, for a large one FedAvg."""

    calibrated: Calibrated
    travel: float

    needs_travel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("travel", self.travel, above=True)

    def __call__(self, view: View) -> Tensor:
        logits = at_least_float32(view.outputs.logits)
        tau = self.calibrated.tau * (view.travel / self.travel).clamp(max=1.0)
        return self.calibrated.at(tau.to(logits.dtype).unsqueeze(-1), logits, view.labels, view.counts)
