"""FedVLS against its equations with raw exponentials, and what padding must not do to it."""

import math

import pytest
import torch
from torch import Tensor

from fedskew.algorithms import build_algorithm
from fedskew.losses import prior_adjusted, suppression
from tests.helpers import assert_close, integers, normal
from tests.helpers.views import view

COUNTS = torch.tensor([0, 3, 40, 7])
PRESENT = torch.tensor([1, 2, 3])


@pytest.fixture
def problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return normal(generator, 5, 4) * 2, PRESENT[integers(generator, 0, 3, 5)]


def naive_suppression(rows: list[list[float]], labels: list[int]) -> float:
    prior = [n / 50 for n in COUNTS.tolist()]
    total = 0.0
    for c, share in enumerate(prior):
        shifted = [
            row[c] - math.log(share + 1e-9) - math.log(4) if label != c else 0.0
            for row, label in zip(rows, labels, strict=True)
        ]
        total += share * (math.log(sum(math.exp(value) for value in shifted)) - math.log(len(rows)))
    return total


def test_the_base_loss_against_the_equation(problem: tuple[Tensor, Tensor]) -> None:
    logits, labels = problem
    for row, y, value in zip(
        logits.tolist(), labels.tolist(), prior_adjusted(logits, labels, COUNTS).tolist(), strict=True
    ):
        z = [f + math.log(n / 50 + 1e-9) for f, n in zip(row, COUNTS.tolist(), strict=True)]
        assert value == pytest.approx(-math.log(math.exp(z[y]) / sum(math.exp(each) for each in z)), rel=1e-11)


def test_suppression_against_the_equation(problem: tuple[Tensor, Tensor]) -> None:
    logits, labels = problem
    expected = 0.01 * naive_suppression(logits.tolist(), labels.tolist())
    assert_close(suppression(0.01)(view(logits, labels, COUNTS)), torch.full((5,), expected, dtype=torch.float64))


def test_padding_changes_nothing(problem: tuple[Tensor, Tensor]) -> None:
    logits, labels = problem
    padded = torch.cat([logits, 9 * logits[:2]]).requires_grad_()
    mask = torch.tensor([True] * 5 + [False] * 2)
    alone = logits.clone().requires_grad_()
    whole = suppression()(view(alone, labels, COUNTS))
    values = suppression()(view(padded, torch.cat([labels, labels[:2]]), COUNTS, mask=mask))
    whole.mean().backward()
    (values * mask / mask.sum()).sum().backward()
    assert_close(values[:5], whole)
    assert alone.grad is not None
    assert padded.grad is not None
    assert_close(padded.grad[:5], alone.grad)
    assert not padded.grad[5:].any()


def test_suppress_0_is_nothing_and_missing_classes_get_no_gradient(problem: tuple[Tensor, Tensor]) -> None:
    logits, labels = problem
    assert not suppression(0.0)(view(logits, labels, COUNTS)).any()
    leaf = logits.requires_grad_()
    suppression()(view(leaf, labels, COUNTS)).sum().backward()
    assert leaf.grad is not None
    assert not leaf.grad[:, 0].any()
    assert (leaf.grad[:, 2][labels != 2] > 0).all()


def test_leading_axes_are_free(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 3, 5, 4), PRESENT[integers(generator, 0, 3, 3, 5)]
    counts = torch.stack([COUNTS, COUNTS.roll(1), torch.ones_like(COUNTS)])
    mask = torch.arange(5) < torch.tensor([5, 2, 3]).unsqueeze(-1)
    both = suppression()(view(logits, labels, counts, mask=mask))
    for k in range(3):
        alone = suppression()(view(logits[k][mask[k]], labels[k][mask[k]], counts[k]))
        assert_close(both[k, 0], alone[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_logits_stay_finite(dtype: torch.dtype, problem: tuple[Tensor, Tensor]) -> None:
    logits = (problem[0] * 1000).to(dtype).requires_grad_()
    values = suppression()(view(logits, problem[1], COUNTS)) + prior_adjusted(logits, problem[1], COUNTS)
    values.sum().backward()
    assert values.dtype == torch.float32
    assert torch.isfinite(values).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_without_missing_classes_nothing_is_distilled(
    problem: tuple[Tensor, Tensor], generator: torch.Generator
) -> None:
    """Documented: what is left is logit adjustment with the suppression."""
    logits, labels = problem
    counts = torch.tensor([2, 3, 40, 7])
    seen = view(logits, labels, counts, teacher=normal(generator, 5, 4))
    left = prior_adjusted(logits, labels, counts) + suppression()(seen)
    assert_close(build_algorithm("fedvls").objective(seen), left)
    assert not torch.equal(
        build_algorithm("fedvls").objective(view(logits, labels, COUNTS, teacher=normal(generator, 5, 4))), left
    )


def test_arguments_that_are_refused() -> None:
    with pytest.raises(ValueError, match="suppress is -1"):
        suppression(-1)
    with pytest.raises(ValueError, match="beta is -1"):
        build_algorithm("fedvls:lam=-1")
