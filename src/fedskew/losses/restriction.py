"""The restricted softmax of FedRS (Li and Zhan, KDD 2021): logits of missing classes are scaled down.

loss = CE(s * f, y)      binary: s_i = 1 if n_i > 0 else alpha
                         proportional (the authors' released code): s_i = (n_i / max n)(1 - alpha) + alpha
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_choice, check_number
from fedskew.losses.counts import check_length
from fedskew.losses.softmax import at_least_float32, softmax_loss


@dataclass(frozen=True)
class Restricted:
    """alpha = 1 is cross entropy; alpha = 0 fixes a missing class's logit at zero, which is not a mask."""

    alpha: float = 0.5
    mode: str = "binary"

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0.0, 1.0)
        check_choice("mode", self.mode, ("binary", "proportional"))

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        check_length(logits, counts)
        logits = at_least_float32(logits)
        return softmax_loss(logits * self.scale(counts.to(logits.dtype)).unsqueeze(-2), labels)

    def scale(self, counts: Tensor) -> Tensor:
        """How much of each logit is kept."""
        if self.mode == "binary":
            return torch.ones_like(counts).masked_fill(counts <= 0, self.alpha)
        return counts / counts.amax(-1, keepdim=True).clamp(min=1) * (1 - self.alpha) + self.alpha
