"""The last linear layer of a model: its input h, the logits f = W h + b behind it, and its rows w_y and biases b_y."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import answers
from fedskew.core.tree import Params
from fedskew.models import Model


@dataclass(frozen=True)
class Outputs:
    """Features [N, F] and logits [N, C] of examples, in float64."""

    features: Tensor
    logits: Tensor


def outputs(model: Model, state: tuple[Params, Params], data: Dataset, x: Tensor) -> Outputs:
    """Stored examples through a model in evaluation mode, in pieces that stay small in memory."""
    pieces = list(answers(model, *state, data, x))
    features = [piece.features for piece in pieces if piece.features is not None]
    if not features:
        raise ValueError(f"{type(model.module).__name__} has no linear layer whose input could be its features")
    logits = torch.cat([piece.logits.double() for piece in pieces])
    return Outputs(torch.cat([each.double() for each in features]).flatten(1), logits)
