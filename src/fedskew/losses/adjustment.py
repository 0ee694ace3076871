"""Logit adjustment (Menon et al., ICLR 2021) with the client's own label distribution pi.

loss = CE(f + tau * log pi, y),   pi = n / sum n
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_choice, check_number
from fedskew.losses.counts import MISSING, check_length, filled, hidden
from fedskew.losses.softmax import at_least_float32, softmax_loss


@dataclass(frozen=True)
class Adjusted:
    """The same `missing` rules as the calibrated loss; sum n cancels in the softmax and is left out."""

    tau: float = 1.0
    missing: str = "floor"

    def __post_init__(self) -> None:
        check_number("tau", self.tau)
        check_choice("missing", self.missing, MISSING)

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        check_length(logits, counts)
        logits = at_least_float32(logits)
        return softmax_loss(logits + self.offset(self.tau, counts, logits.dtype).unsqueeze(-2), labels)

    def offset(self, tau: float, counts: Tensor, dtype: torch.dtype) -> Tensor:
        """What is added to the logits [..., C]: tau log n, and -inf for a class that is masked."""
        return hidden(filled(counts, self.missing, dtype).log() * tau, counts, self.missing)
