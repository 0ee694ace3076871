"""Logit adjustment against its equation."""

import math
import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedskew.losses import adjusted
from tests.helpers import assert_close, integers, normal
from tests.helpers.parts import MISSING

COUNTS = torch.tensor([0, 1, 7, 120, 0, 2500])
PRESENT = torch.tensor([1, 2, 3, 5])


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return (normal(generator, 9, 6) * 2).requires_grad_()


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    return PRESENT[integers(generator, 0, 4, 9)]


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 3.0])
def test_against_the_equation(logits: Tensor, labels: Tensor, tau: float, missing: str) -> None:
    """CE(f + tau log pi): the softmax is exp(f) pi^tau, and a shared factor of pi cancels."""
    held = [n or {"floor": 1, "mask": 0, "epsilon": 1e-8}[missing] for n in COUNTS.tolist()]
    pi = [n / sum(held) for n in held]
    losses = adjusted(tau, missing)(logits, labels, COUNTS)
    for row, label, loss in zip(logits.tolist(), labels.tolist(), losses.tolist(), strict=True):
        parts = [math.exp(f) * p**tau if p > 0 else 0.0 for f, p in zip(row, pi, strict=True)]
        assert loss == pytest.approx(-math.log(parts[label] / sum(parts)), rel=1e-11, abs=1e-12)


def test_tau_zero_or_equal_counts_is_cross_entropy(logits: Tensor, labels: Tensor) -> None:
    expected = functional.cross_entropy(logits, labels, reduction="none")
    for missing in MISSING:
        assert_close(adjusted(0.0, missing)(logits, labels, torch.arange(1, 7)), expected)
        assert_close(adjusted(2.0, missing)(logits, labels, torch.full((6,), 8)), expected)


def test_a_masked_class_gets_exactly_no_gradient(logits: Tensor, labels: Tensor) -> None:
    adjusted(1.0, "mask")(logits, labels, COUNTS).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[:, COUNTS == 0] == 0).all()
    assert (logits.grad[:, COUNTS > 0] != 0).all()


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("counts", [[0, 0, 50, 0], [3, 0, 900, 0]], ids=str)
@pytest.mark.parametrize("tau", [0.0, 1.0, 50.0])
def test_extremes_stay_finite(missing: str, counts: list[int], tau: float) -> None:
    logits = (torch.tensor([[1, -1, 1, -1], [-1, 1, -1, 1], [0, 0, 0, 0.0]]) * 1e4).requires_grad_()
    losses = adjusted(tau, missing)(logits, torch.full((3,), 2), torch.tensor(counts))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("missing", MISSING)
def test_gradcheck(missing: str, logits: Tensor, labels: Tensor) -> None:
    loss = adjusted(0.7, missing)
    assert torch.autograd.gradcheck(lambda f: loss(f, labels, COUNTS), (logits,))


@pytest.mark.parametrize("missing", MISSING)
def test_leading_axes_are_free(missing: str, generator: torch.Generator) -> None:
    loss = adjusted(1.5, missing)
    logits, labels = normal(generator, 2, 3, 5, 4), integers(generator, 0, 2, 2, 3, 5)
    counts = integers(generator, 0, 9, 2, 3, 4)
    counts[..., :2] += 1
    both = loss(logits, labels, counts)
    for s in range(2):
        assert_close(loss(logits[s], labels[s], counts[s]), both[s])
        for k in range(3):
            assert_close(loss(logits[s, k], labels[s, k], counts[s, k]), both[s, k])


def test_half_precision_logits_are_computed_in_float32(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 9, 6).bfloat16(), torch.full((9,), 3)
    assert adjusted()(logits, labels, COUNTS).dtype == torch.float32
    assert torch.equal(adjusted()(logits, labels, COUNTS), adjusted()(logits.float(), labels, COUNTS))


def test_wrong_requests(logits: Tensor, labels: Tensor) -> None:
    with pytest.raises(ValueError, match="counts have 5 classes, logits have 6"):
        adjusted()(logits, labels, torch.ones(5))
    with pytest.raises(ValueError, match="missing is 'drop'; allowed: floor, mask, epsilon"):
        adjusted(missing="drop")
    for tau in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=re.escape(f"tau is {tau}; allowed: 0 or more")):
            adjusted(tau)
