"""Label counts as the losses use them, and what a class the client does not hold counts as."""

import math

import torch
from torch import Tensor

MISSING = ("floor", "mask", "epsilon")
EPSILON = 1e-8


def check_length(logits: Tensor, counts: Tensor) -> None:
    """Check for one count per class, and no fractions. Integer counts, as in training, need no device
    synchronisation."""
    if counts.shape[-1:] != logits.shape[-1:]:
        raise ValueError(f"counts have {counts.shape[-1]} classes, logits have {logits.shape[-1]}")
    check_not_shares(counts)


def check_not_shares(counts: Tensor) -> None:
    """Refuse fractions, which every rule for missing classes would take for almost nothing."""
    if counts.is_floating_point() and bool((between := (counts > 0) & (counts < 1)).any()):
        raise ValueError(
            f"counts have {counts[between][0].item():g}; allowed: numbers of examples, 0 or at least 1. Between 0 and "
            "1 is a fraction: multiply fractions by the number of examples"
        )


def filled(counts: Tensor, missing: str, dtype: torch.dtype) -> Tensor:
    """Counts with a missing class counted as one example (floor, mask) or as 1e-8 of one (epsilon)."""
    return counts.to(dtype).clamp(min=EPSILON if missing == "epsilon" else 1.0)


def log_prior(counts: Tensor, everybody: Tensor | None = None) -> Tensor:
    """log n of a client's label counts, and log n/N relative to `everybody`'s. A class without examples counts as
    having one; a class that nobody has is as unlikely as the least likely of the others."""
    own = filled(counts, "floor", torch.float64).log()
    if everybody is None:
        return own
    relative = own - filled(everybody, "floor", torch.float64).log()
    return torch.where(everybody > 0, relative, relative.min(-1, keepdim=True).values)


def hidden(offset: Tensor, counts: Tensor, missing: str) -> Tensor:
    """An additive offset per class, -inf for missing classes where the rule is to mask them."""
    return offset.masked_fill(counts <= 0, -math.inf) if missing == "mask" else offset


def check_labels(labels: Tensor, counts: Tensor, *, present: bool = True) -> None:
    """Refuse labels outside 0..C-1 and, with `present`, of a class with count 0 (synchronises with the host once)."""
    classes = counts.shape[-1]
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.numel():
        raise ValueError(f"label {int(wrong[0])} is outside 0..{classes - 1}")
    absent = labels[:0] if not present else labels[counts.to(labels.device)[labels] <= 0]
    if absent.numel():
        raise ValueError(f"a training label is class {int(absent[0])}, whose count is 0: counts and labels disagree")
