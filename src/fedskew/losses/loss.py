"""A loss is a pure function of a view; most need its logits, labels and counts only."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedskew.core.checks import required
from fedskew.core.view import View

Loss = Callable[[View], Tensor]
"""One value for each example, [..., B], without a mean. With `needs_travel = True` the view's travel is set."""

OnExamples = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class OnLogits:
    """A loss that treats examples one by one: f(logits[..., B, C], labels[..., B], counts[..., C]) -> [..., B]."""

    function: OnExamples

    def __call__(self, view: View) -> Tensor:
        return self.function(view.outputs.logits, view.labels, view.counts)


def on_examples(loss: Loss) -> OnExamples | None:
    """The function of logits, labels and counts that a loss is, if it is one."""
    return loss.function if isinstance(loss, OnLogits) else None


def as_loss(function: Callable[..., Tensor]) -> Loss:
    """A function of a view unchanged; one of logits, labels and counts wrapped as a function of a view."""
    if isinstance(function, OnLogits):
        return function
    names = [p.name for p in required(function)]
    if len(names) not in (1, 3):
        raise ValueError(f"a loss takes ({', '.join(names)}); allowed: (view) or (logits, labels, counts)")
    return function if len(names) == 1 else OnLogits(function)
