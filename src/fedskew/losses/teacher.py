"""Distillation from the received global model over some of the classes, added to a loss.

beta T^2 sum_c q_c log(q_c / p_c)      q = softmax(t / T) over the teacher's classes, p = softmax(f / T) over ours

classes     the teacher's                     ours
not_true    c != y                            c != y      FedNTD (Lee et al., NeurIPS 2022)
major       c != y and n_c <= mean of n       c != y      FedLMD (Lu et al., ACM Multimedia 2023)
vacant      n_c = 0                           n_c = 0     as in FedVLS (Guo et al., AAAI 2025)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_choice, check_number
from fedskew.core.view import View
from fedskew.losses.counts import check_length
from fedskew.losses.softmax import at_least_float32


@dataclass(frozen=True)
class Distillation:
    """If the teacher has no classes, the value and the gradient are 0."""

    beta: float = 1.0
    T: float = 1.0
    classes: str = "not_true"

    def __post_init__(self) -> None:
        check_number("beta", self.beta)
        check_number("T", self.T, 0.01)
        check_choice("classes", self.classes, ("not_true", "major", "vacant"))

    def __call__(self, view: View) -> Tensor:
        check_length(view.outputs.logits, view.counts)
        ours, theirs = (at_least_float32(said.logits) / self.T for said in (view.outputs, view.teacher()))
        among_theirs, among_ours = self.sets(view)
        log_q, log_p = _log_shares(theirs, among_theirs), _log_shares(ours, among_ours)
        apart = (log_q.exp() * (log_q - log_p)).masked_fill(~among_theirs, 0.0)
        return self.beta * self.T**2 * apart.sum(-1)

    def sets(self, view: View) -> tuple[Tensor, Tensor]:
        """Which classes the teacher's and our shares are over, [..., B, C]; the first are among the second."""
        counts, shape = view.counts, view.outputs.logits.shape
        if self.classes == "vacant":
            vacant = (counts <= 0).unsqueeze(-2).expand(shape)
            return vacant, vacant
        others = torch.arange(shape[-1], device=counts.device) != view.labels.unsqueeze(-1)
        major = (counts * shape[-1] > counts.sum(-1, keepdim=True)).unsqueeze(-2)
        return (others if self.classes == "not_true" else others & ~major), others


def _log_shares(logits: Tensor, among: Tensor) -> Tensor:
    """log softmax over some classes, -inf elsewhere; over all if there are none, so that nothing becomes NaN."""
    left_out = ~among & among.any(-1, keepdim=True)
    return logits.masked_fill(left_out, -math.inf).log_softmax(-1)
