"""What every method's objective must do with a view: its loss and its terms together."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedskew.algorithms import Algorithm
from fedskew.core.view import Outputs, View
from tests.helpers import assert_close, integers, normal
from tests.helpers.parts import METHODS

CLASSES, FEATURES, BATCH = 6, 5, 7
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def view(generator: torch.Generator, *lead: int) -> View:
    """Labels are of classes that are there; class 4 is missing everywhere and 5 somewhere."""
    counts = integers(generator, 1, 500, *lead, CLASSES)
    counts[..., 4] = 0
    counts[..., 5] *= integers(generator, 0, 2, *lead)
    outputs, taught = (
        Outputs(3 * normal(generator, *lead, BATCH, CLASSES), normal(generator, *lead, BATCH, FEATURES))
        for _ in range(2)
    )
    travel = torch.rand(lead, generator=generator, dtype=torch.float64)
    return View(outputs, integers(generator, 0, 4, *lead, BATCH), None, counts, travel, lambda: taught)


def some(seen: View, *index: int | slice) -> View:
    """Some clients, and some examples of a batch, of a view."""

    def taken(outputs: Outputs) -> Outputs:
        assert outputs.features is not None
        return Outputs(outputs.logits[index], outputs.features[index])

    client = tuple(i for i in index if isinstance(i, int))
    return View(
        taken(seen.outputs),
        seen.labels[index],
        None if seen.mask is None else seen.mask[index],
        seen.counts[client],
        seen.travel[client],
        lambda: taken(seen.teacher()),
    )


def mean(losses: Tensor, mask: Tensor | None) -> Tensor:
    return losses.mean(-1) if mask is None else (losses * mask).sum(-1) / mask.sum(-1)


@EVERY
def test_clients_do_not_meet(method: Algorithm, generator: torch.Generator) -> None:
    seen = view(generator, 3)
    both = method.objective(seen)
    assert both.shape == seen.labels.shape
    for k in range(3):
        assert_close(method.objective(some(seen, k)), both[k])


@EVERY
def test_padding_changes_nothing(method: Algorithm, generator: torch.Generator) -> None:
    """Copies of the last example behind the mask: the mean loss and its gradients are those without them."""
    short = some(view(generator, 2), slice(None), slice(0, 5))
    index = torch.tensor([0, 1, 2, 3, 4, 4, 4])

    def padded(outputs: Outputs) -> Outputs:
        assert outputs.features is not None
        return Outputs(outputs.logits[:, index], outputs.features[:, index])

    whole = short.outputs
    assert whole.features is not None
    leaves = [whole.logits.clone().requires_grad_(), whole.features.clone().requires_grad_()]
    plain = replace(short, outputs=Outputs(*leaves))
    filled = View(
        padded(plain.outputs),
        short.labels[:, index],
        (torch.arange(7) < 5).expand(2, 7),
        short.counts,
        short.travel,
        lambda: padded(short.teacher()),
    )
    expected, found = mean(method.objective(plain), None), mean(method.objective(filled), filled.mask)
    assert_close(found, expected, rtol=1e-11)
    for one, other in zip(
        torch.autograd.grad(expected.sum(), leaves, allow_unused=True),
        torch.autograd.grad(found.sum(), leaves, allow_unused=True),
        strict=True,
    ):
        if one is not None and other is not None:
            assert_close(other, one, rtol=1e-10)
        else:
            assert one is other


@EVERY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_finite_in_every_type(method: Algorithm, dtype: torch.dtype, generator: torch.Generator) -> None:
    seen = view(generator, 2)
    assert seen.outputs.features is not None
    coarse = Outputs((seen.outputs.logits * 30).to(dtype), seen.outputs.features.to(dtype))
    losses = method.objective(replace(seen, outputs=coarse, teacher=lambda: coarse))
    assert losses.dtype == torch.float32
    assert torch.isfinite(losses).all()
