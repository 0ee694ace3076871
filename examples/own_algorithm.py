"""A method of your own: say which part of FedAvg it changes.

fedskew compare --algorithm fedavg --algorithm examples/own_algorithm.py:reweighted,power=0.5 --rounds 50 --lr 0.1
"""

from dataclasses import dataclass

from torch import Tensor

from fedskew import Algorithm, cross_entropy


@dataclass(frozen=True)
class Reweighted:
    """Cross entropy in which an example of class y weighs n_y^(-power), scaled to a mean weight of one."""

    power: float

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        n = counts.to(logits.dtype)
        weight = n.clamp(min=1) ** -self.power
        weight = weight * n.sum(-1, keepdim=True) / (weight * n).sum(-1, keepdim=True)
        return weight.gather(-1, labels) * cross_entropy(logits, labels, counts)


def reweighted(power: float = 0.5) -> Algorithm:
    return Algorithm("reweighted", loss=Reweighted(power))
