"""The loss of FedVLS (Guo et al., AAAI 2025), which also distils over the vacant classes (teacher.py).

CE(f + log(pi + 1e-9), y)  +  suppress * sum_c pi_c [logsumexp_b g_bc - log B]

g_bc = f_bc - log(pi_c + 1e-9) - log C for y_b != c, else 0        pi = n / sum n, B examples in the batch
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_number
from fedskew.core.view import View
from fedskew.losses.counts import check_length
from fedskew.losses.softmax import at_least_float32, softmax_loss

_TINY = 1e-9


def prior_adjusted(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Cross entropy of f + log(pi + 1e-9)."""
    check_length(logits, counts)
    logits = at_least_float32(logits)
    return softmax_loss(logits + _log_prior(_prior(counts, logits.dtype)).unsqueeze(-2), labels)


@dataclass(frozen=True)
class Suppression:
    """Holds down the logits of classes other than the example's. One value per batch; padding is left out."""

    suppress: float = 0.005

    def __post_init__(self) -> None:
        check_number("suppress", self.suppress)

    def __call__(self, view: View) -> Tensor:
        logits = at_least_float32(view.outputs.logits)
        classes = logits.shape[-1]
        prior = _prior(view.counts, logits.dtype)
        own = view.labels.unsqueeze(-1) == torch.arange(classes, device=logits.device)
        held_down = (logits - _log_prior(prior).unsqueeze(-2) - math.log(classes)).masked_fill(own, 0.0)
        examples = torch.full_like(logits[..., 0], 1) if view.mask is None else view.mask.to(logits.dtype)
        spread = (held_down + examples.log().unsqueeze(-1)).logsumexp(-2) - examples.sum(-1, keepdim=True).log()
        value = self.suppress * (prior * spread).sum(-1, keepdim=True)
        return value.expand(view.labels.shape)


def _prior(counts: Tensor, dtype: torch.dtype) -> Tensor:
    return counts.to(dtype) / counts.sum(-1, keepdim=True).to(dtype)


def _log_prior(prior: Tensor) -> Tensor:
    return (prior + _TINY).log()
