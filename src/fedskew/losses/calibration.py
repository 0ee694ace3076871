"""The calibrated cross entropy of FedLC (Zhang et al., ICML 2022, equation 7).

    z_i = f_i - tau * n_i^(-1/4)        loss = logsumexp_i z_i - z_y

n_i is how many training examples of class i the client holds: a rare class gets a larger margin.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_choice, check_number
from fedskew.losses.counts import MISSING, check_length, filled, hidden
from fedskew.losses.softmax import at_least_float32, softmax_loss


@dataclass(frozen=True)
class Calibrated:
    """`missing` says what n_i = 0 means: `floor` counts it as 1, `mask` leaves the class out, `epsilon` counts 1e-8.

    `denominator` is `all`, or `others` for the sum over i != y that the paper prints, which has no lower bound:
    loss_all = softplus(loss_others).
    """

    tau: float = 5.0
    missing: str = "floor"
    denominator: str = "all"

    def __post_init__(self) -> None:
        check_number("tau", self.tau)
        check_choice("missing", self.missing, MISSING)
        check_choice("denominator", self.denominator, ("all", "others"))

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return self.at(self.tau, logits, labels, counts)

    def at(self, tau: float | Tensor, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """The loss with another tau, possibly one for each client, [..., 1]."""
        check_length(logits, counts)
        logits = at_least_float32(logits)
        z = logits + self.offset(tau, counts, logits.dtype).unsqueeze(-2)
        return softmax_loss(z, labels) if self.denominator == "all" else _over_others(z, labels)

    def offset(self, tau: float | Tensor, counts: Tensor, dtype: torch.dtype) -> Tensor:
        """What is added to the logits [..., C]: -tau n^(-1/4), and -inf for a class that is masked."""
        return hidden(filled(counts, self.missing, dtype).pow(-0.25) * -tau, counts, self.missing)


def _over_others(z: Tensor, labels: Tensor) -> Tensor:
    """logsumexp_{i != y} z_i - z_y; zero, with zero gradient, if there is no other class."""
    if labels.shape != z.shape[:-1]:
        raise ValueError(f"labels have shape {list(labels.shape)}, logits {list(z.shape)}")
    others = z.scatter(-1, labels.unsqueeze(-1), -math.inf)
    any_other = (others > -math.inf).any(-1)
    others = others.masked_fill(~any_other.unsqueeze(-1), 0.0)
    loss = others.logsumexp(-1) - z.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return torch.where(any_other, loss, torch.zeros_like(loss))
