"""How good the global model is: plain softmax on the test set, nothing calibrated at test time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.core.tree import Params
from fedskew.core.view import Outputs

if TYPE_CHECKING:
    from fedskew.models import Model

_BATCH_VALUES = 1 << 22


@dataclass(frozen=True)
class Evaluation:
    """`balanced_accuracy` is the mean over classes that occur in the test set; the accuracy of other classes is None.
    `client_accuracy` is the mean over clients of the accuracy on each client's own test part, if it has one."""

    accuracy: float
    balanced_accuracy: float
    loss: float
    per_class_accuracy: list[float | None]
    client_accuracy: float | None = None

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, clients: Tensor | None = None) -> "Evaluation":
        """What a model's outputs [N, C] for N examples are worth; `clients` [N] says whose they are."""
        right = logits.argmax(-1) == labels
        per_class = _group_mean(right, labels, logits.shape[-1])
        return cls(
            accuracy=right.double().mean().item(),
            balanced_accuracy=_mean(per_class),
            loss=torch.nn.functional.cross_entropy(logits, labels).item(),
            per_class_accuracy=per_class,
            client_accuracy=None if clients is None else _mean(_group_mean(right, clients, int(clients.max()) + 1)),
        )


def evaluate_model(model: "Model", params: Params, buffers: Params, data: Dataset) -> Evaluation:
    logits = predict(model, params, buffers, data, data.x_test)
    return Evaluation.of(logits, data.y_test, data.client_test)


def guessed(data: Dataset) -> tuple[float, float]:
    """The accuracy and the balanced accuracy that guessing reaches on a test set: q, the share of the most frequent
    class, and 1/C of the C classes that occur, each with two standard errors. These are those of n answers that are
    right with that probability, sqrt(q (1-q) / n), and of the mean over classes, sqrt(1/C (1 - 1/C) sum_c 1/n_c) / C.
    """
    sizes = torch.bincount(data.y_test).double()
    sizes = sizes[sizes > 0]
    q, p = sizes.max() / sizes.sum(), 1 / len(sizes)
    errors = (q * (1 - q) / sizes.sum()).sqrt(), (p * (1 - p) * (1 / sizes).sum()).sqrt() / len(sizes)
    return float(q + 2 * errors[0]), float(p + 2 * errors[1])


def predict(model: "Model", params: Params, buffers: Params, data: Dataset, x: Tensor) -> Tensor:
    """Logits of stored examples, in pieces that stay small in memory."""
    return torch.cat([said.logits for said in answers(model, params, buffers, data, x)])


@torch.no_grad()
def answers(model: "Model", params: Params, buffers: Params, data: Dataset, x: Tensor) -> Iterator[Outputs]:
    """The outputs of a model in evaluation mode for stored examples, a piece at a time."""
    dtype = tree.first(params).dtype
    for piece in x.split(piece_size(x)):
        yield model.apply(params, buffers, data.prepare(piece, dtype), train=False)[0]


def piece_size(x: Tensor) -> int:
    """How many of these examples go through a model at once."""
    return max(1, _BATCH_VALUES // max(1, x[0].numel()))


def are_probabilities(logits: Tensor) -> bool:
    """Whether outputs look like those of a softmax; logits add up to one only by chance."""
    sums = logits.double().sum(-1)
    return bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=1e-3)


def _group_mean(right: Tensor, group: Tensor, groups: int) -> list[float | None]:
    total = torch.bincount(group, minlength=groups).tolist()
    hits = torch.bincount(group[right], minlength=groups).tolist()
    return [hit / n if n else None for hit, n in zip(hits, total, strict=True)]


def _mean(shares: list[float | None]) -> float:
    """Over the groups that have examples."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known)
