"""Decorrelated features (FedDecorr; Shi et al., ICLR 2023), added to a loss.

    beta / N * mean over i != j of (Z'Z)_ij^2        Z [N, F]: features standardised over the batch's N examples

The variance is the one over N - 1, with 1e-8 added to it, as in the authors' code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.checks import check_number
from fedskew.core.view import View
from fedskew.losses.softmax import at_least_float32

_EPS = 1e-8


@dataclass(frozen=True)
class Decorrelation:
    """One value per batch, the same for each of its examples. Padding is left out; for a single example it is 0."""

    beta: float = 0.1

    def __post_init__(self) -> None:
        check_number("beta", self.beta)

    def __call__(self, view: View) -> Tensor:
        features = view.outputs.features
        if features is None:
            raise ValueError(
                "feddecorr needs the model's features, the input of a linear layer, but this model has none"
            )
        each = at_least_float32(features.flatten(view.labels.ndim))
        with torch.autocast(features.device.type, enabled=False):
            value = self.beta * _off_diagonal(*_standardised(each, view.mask))
        return value.unsqueeze(-1).expand(view.labels.shape)


def _standardised(features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Z [..., B, F] with zeros for padding, and how many examples there are, [...]."""
    kept = torch.full_like(features[..., :1], 1) if mask is None else mask.to(features.dtype).unsqueeze(-1)
    examples = kept.sum(-2, keepdim=True)
    centred = (features - (features * kept).sum(-2, keepdim=True) / examples) * kept
    var = centred.square().sum(-2, keepdim=True) / (examples - 1).clamp(min=1)
    return centred * (var + _EPS).rsqrt(), examples[..., 0, 0]


def _off_diagonal(z: Tensor, examples: Tensor) -> Tensor:
    """The mean square off the diagonal of Z'Z over N; ZZ' has the same norm, and is often the smaller matrix."""
    size = z.shape[-1]
    products = z @ z.mT if z.shape[-2] < size else z.mT @ z
    off = products.square().sum((-2, -1)) - z.square().sum(-2).square().sum(-1)
    return off / (max(1, size * (size - 1)) * examples)
