"""Plain cross entropy, and the two steps every loss of this folder shares."""

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """logsumexp_i f_i - f_y, whatever the counts."""
    return softmax_loss(at_least_float32(logits), labels)


def softmax_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Per-example cross entropy with any leading axes; a logit of -inf takes no part and gets no gradient."""
    flat = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return flat.view(labels.shape)


def at_least_float32(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
