"""The paper's deviation bound D_jr, plain (definition 3, theorem 1) and calibrated (theorem 3), as pure functions.

h^(c) and p_y^(c) are means over the examples of class c: of features, and of the probability of class y. In matrices
over pairs the row is j and the column is r; in `shares` the row is the examples' class and the column is y.
"""

import torch
from torch import Tensor

from fedskew.losses import OnExamples


def class_means(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Means [C, D] of rows [N, D] over the examples of each class; NaN for a class without examples."""
    members = torch.nn.functional.one_hot(labels, classes).to(values)
    return (members.T @ values) / members.sum(0).unsqueeze(-1)


def probabilities(loss: OnExamples, logits: Tensor, counts: Tensor) -> Tensor | None:
    """The softmax [N, C] that a loss trains: p_y(x) = exp(-loss(f(x), y)); None for a loss that is not based on a
    softmax.

    For cross entropy that is softmax(f), for the calibrated loss softmax(f - tau n^(-1/4)), and likewise for others.
    """
    shares = _log_shares(loss, logits, counts).exp()
    whole = torch.allclose(shares.sum(-1), torch.ones_like(shares[..., 0]), atol=1e-6)
    return shares if whole else None


def slopes(loss: OnExamples, counts: Tensor) -> Tensor:
    """s [C] of a loss that is the cross entropy of s * f + o, measured on the loss; 0 for a class that it masks.

    Where f_y grows by 1, log p_y - log p_r grows by s_y for every other class r. For FedRS s is not 1.
    """
    steps = torch.eye(len(counts), dtype=torch.float64, device=counts.device)
    grown = _log_shares(loss, steps, counts) - _log_shares(loss, torch.zeros_like(steps), counts)
    apart = (grown.diagonal().unsqueeze(-1) - grown).fill_diagonal_(torch.nan)
    return apart.nanmedian(-1).values.nan_to_num(0.0)


def _log_shares(loss: OnExamples, logits: Tensor, counts: Tensor) -> Tensor:
    labels = [torch.full(logits.shape[:-1], y, device=logits.device) for y in range(logits.shape[-1])]
    return torch.stack([loss(logits, label, counts) for label in labels], -1).neg()


def deviation_bound(features: Tensor, shares: Tensor) -> Tensor:
    """D_jr = (1 - p_r^(r)) |h^(r)|^2 / (p_r^(j) h^(r).h^(j)), a matrix [j, r] from class means [C, F] and [C, C]."""
    own = (1 - shares.diagonal()) * features.square().sum(-1)
    return own / (shares * (features @ features.T))


def factored_bound(features: Tensor, shares: Tensor, factors: Tensor) -> Tensor:
    """D_jr = sum_{y != r} factors_(r,y) p_y^(r) |h^(r)|^2 / (p_r^(j) h^(r).h^(j)), a matrix [j, r].

    With `shares` of `printed_shares`, theorem 3 prints the factor Delta_(r,y), `pairwise_margins`. That cannot be meant
    literally: at tau = 0 it is 0 and not theorem 1, and it is negative for the most frequent class. With the factor
    exp(Delta_(r,y)) the formula is exactly `deviation_bound` of the calibrated softmax, so we read it that way.
    """
    others = (factors * shares).fill_diagonal_(0.0).sum(-1) * features.square().sum(-1)
    return others / (shares * (features @ features.T))


def printed_shares(logits: Tensor, offsets: Tensor) -> Tensor:
    """Theorem 3's p~_y(x) = exp(f_y) / sum_i exp(f_i - offset_i) as printed: without the margin above, no sum of 1."""
    return (logits - (logits - offsets).logsumexp(-1, keepdim=True)).exp()


def step_scores(features: Tensor, shares: Tensor, labels: Tensor, means: Tensor, scale: Tensor) -> Tensor:
    """Delta w_y . h^(r), a matrix [y, r], for one full-batch step of length 1 along the classifier's gradient:

    Delta w_y = s_y / n sum_i (1[y_i = y] - p_y(x_i)) h(x_i)     with the loss's `slopes` s as `scale`
    """
    pulls = (torch.nn.functional.one_hot(labels, shares.shape[-1]).to(shares) - shares) * scale
    return (pulls.T @ features / len(labels)) @ means.T
