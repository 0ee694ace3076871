"""The last layer of a network, which turns features h into logits.

    linear    W h + b
    unit      W s h/|h| + b         s learnable, from 10
    etf       s M' u/|u|            u = V h + c, s learnable, from 10; M fixed

M = sqrt(C / (C - 1)) P (I - 11'/C), with P [F, C] orthonormal and drawn once: the columns have length 1, and any two of
them have the same angle, the widest possible (a simplex equiangular tight frame). With the loss `fedla` this is FedETF
(Li et al., ICCV 2023), whose authors also have the linear layer V in front: features behind a ReLU are never negative.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedskew.core.checks import check_choice
from fedskew.models.layers import Linear

_SCALE = 10.0


class Unit(Linear):
    """A linear layer on features of one length, which is learnt."""

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__(features, num_classes)
        self.scale = nn.Parameter(torch.tensor([_SCALE]))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(_unit(input, self.scale))


class Simplex(nn.Module):
    """Logits are angles to fixed directions; their matrix is frozen, so it is neither trained nor sent."""

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__()
        self.turn = Linear(features, features)
        self.scale = nn.Parameter(torch.tensor([_SCALE]))
        self.weight = nn.Parameter(simplex(features, num_classes).T.contiguous().float(), requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        return _unit(self.turn(input), self.scale) @ self.weight.mT


_KINDS: dict[str, type[nn.Module]] = {"linear": Linear, "unit": Unit, "etf": Simplex}


def head(kind: str, features: int, num_classes: int) -> nn.Module:
    check_choice("head", kind, _KINDS)
    if kind == "etf" and not 2 <= num_classes <= features:
        raise ValueError(
            f"head=etf with {num_classes} classes and {features} features; allowed: 2 to {features} classes"
        )
    return _KINDS[kind](features, num_classes)


def simplex(features: int, num_classes: int) -> Tensor:
    """The matrix M [F, C] from random numbers of torch's own generator, in float64."""
    basis: Tensor = torch.linalg.qr(torch.randn(features, num_classes, dtype=torch.float64))[0]
    centred = torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes
    return math.sqrt(num_classes / (num_classes - 1)) * basis @ centred


def _unit(features: Tensor, scale: Tensor) -> Tensor:
    """Features [..., B, F] of length `scale` [..., 1]."""
    return functional.normalize(features, dim=-1, eps=1e-6) * scale.unsqueeze(-1)
