"""What every loss must do."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedskew.losses import OnExamples
from tests.helpers import assert_close, integers, normal
from tests.helpers.parts import LOSSES

EVERY = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def problem(generator: torch.Generator, *lead: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Labels are of classes that are there; class 4 is missing everywhere and 5 somewhere."""
    counts = integers(generator, 1, 500, *lead, 6)
    counts[..., 4] = 0
    counts[..., 5] *= integers(generator, 0, 2, *lead)
    return normal(generator, *lead, 7, 6, dtype=dtype) * 3, integers(generator, 0, 4, *lead, 7), counts


@EVERY
def test_leading_axes_are_free(loss: OnExamples, generator: torch.Generator) -> None:
    logits, labels, counts = problem(generator, 2, 3)
    both = loss(logits, labels, counts)
    assert both.shape == labels.shape
    for s in range(2):
        assert_close(loss(logits[s], labels[s], counts[s]), both[s])
        for k in range(3):
            assert_close(loss(logits[s, k], labels[s, k], counts[s, k]), both[s, k])


@EVERY
def test_the_gradient_of_the_sum_is_every_clients_own(loss: OnExamples, generator: torch.Generator) -> None:
    logits, labels, counts = problem(generator, 3)
    together = logits.clone().requires_grad_()
    loss(together, labels, counts).sum().backward()
    assert together.grad is not None
    for k in range(3):
        alone = logits[k].clone().requires_grad_()
        loss(alone, labels[k], counts[k]).sum().backward()
        assert alone.grad is not None
        assert_close(alone.grad, together.grad[k])


@EVERY
def test_examples_do_not_meet(loss: OnExamples, generator: torch.Generator) -> None:
    logits, labels, counts = problem(generator)
    whole = loss(logits, labels, counts)
    assert_close(loss(logits[2:5], labels[2:5], counts), whole[2:5])
    assert_close(loss(logits.flip(0), labels.flip(0), counts), whole.flip(0))


@EVERY
def test_pure(loss: OnExamples, generator: torch.Generator) -> None:
    given = problem(generator)
    before = [tensor.clone() for tensor in given]
    first, second = loss(*given), loss(*given)
    assert torch.equal(first, second)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, before, strict=True))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count_dtype", [torch.int64, torch.float32, torch.float64])
def test_the_type_of_the_logits_is_kept(
    loss: OnExamples, dtype: torch.dtype, count_dtype: torch.dtype, generator: torch.Generator
) -> None:
    logits, labels, counts = problem(generator, dtype=dtype)
    assert loss(logits, labels, counts.to(count_dtype)).dtype == dtype


@EVERY
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_finite(loss: OnExamples, scale: float, generator: torch.Generator) -> None:
    logits, labels, counts = problem(generator, 2, dtype=torch.float32)
    logits = (logits * scale).requires_grad_()
    values = loss(logits, labels, counts)
    values.sum().backward()
    assert torch.isfinite(values).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@EVERY
def test_counts_get_no_gradient_and_need_none(loss: OnExamples, generator: torch.Generator) -> None:
    logits, labels, counts = problem(generator)
    assert not loss(logits, labels, counts).requires_grad
    assert loss(logits.requires_grad_(), labels, counts).requires_grad


@EVERY
def test_float64_is_computed_in_float64(loss: OnExamples, generator: torch.Generator) -> None:
    """A constant rounded to float32 on the way would move a logit's effect by 1e-8."""
    logits, labels, counts = problem(generator)
    exact = loss(logits, labels, counts)
    with torch.no_grad():
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            wide = loss(logits, labels, counts)
        finally:
            torch.set_default_dtype(before)
    assert_close(exact, wide, rtol=1e-13, atol=1e-13)


@EVERY
def test_hashable_and_equal_by_value(loss: OnExamples) -> None:
    if not dataclasses.is_dataclass(loss):
        return
    twin = dataclasses.replace(loss)  # type: ignore[type-var]
    assert twin == loss
    assert hash(twin) == hash(loss)
