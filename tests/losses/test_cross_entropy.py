"""Plain cross entropy against its definition."""

import math

import pytest
import torch

from fedskew.losses import cross_entropy
from fedskew.losses.softmax import at_least_float32, softmax_loss
from tests.helpers import assert_close, integers, normal


def test_against_the_definition(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 7, 4) * 3, integers(generator, 0, 4, 7)
    losses = cross_entropy(logits, labels, torch.ones(4))
    for row, label, loss in zip(logits.tolist(), labels.tolist(), losses.tolist(), strict=True):
        assert loss == pytest.approx(math.log(sum(math.exp(f) for f in row)) - row[label], rel=1e-12)


def test_counts_do_not_matter(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 7, 4), integers(generator, 0, 4, 7)
    alike = cross_entropy(logits, labels, torch.ones(4))
    assert torch.equal(cross_entropy(logits, labels, torch.tensor([0, 0, 900, 1])), alike)


def test_equals_pytorchs(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 7, 4), integers(generator, 0, 4, 7)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    assert_close(cross_entropy(logits, labels, torch.ones(4)), expected)


def test_a_logit_of_minus_infinity_takes_no_part() -> None:
    logits = torch.tensor([[1.0, -math.inf, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = softmax_loss(logits, torch.tensor([0]))
    loss.sum().backward()
    assert loss.item() == pytest.approx(math.log(math.e + math.e**2) - 1)
    assert logits.grad is not None
    assert logits.grad[0, 1] == 0.0
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_at_least_float32(given: torch.dtype, used: torch.dtype) -> None:
    assert at_least_float32(torch.zeros(1, dtype=given)).dtype == used
