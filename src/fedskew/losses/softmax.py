"""Plain cross entropy, and the two steps every loss of this folder shares."""

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """The plain loss of each example, logsumexp_i f_i - f_y; the counts do not matter."""
    return softmax_loss(at_least_float32(logits), labels)


def softmax_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Per-example cross entropy with any leading axes; a logit of -inf is ignored and gets no gradient.

    Classes go first: a softmax over few classes is several times faster across examples than along each one.
    """
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"labels of shape {tuple(labels.shape)} for logits of shape {tuple(logits.shape)}")
    log_shares = logits.movedim(-1, 0).log_softmax(0)
    return -log_shares.gather(0, labels.unsqueeze(0)).squeeze(0)


def at_least_float32(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
