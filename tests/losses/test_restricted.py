"""The restricted softmax against its two definitions."""

import math
import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedskew.losses import restricted
from tests.helpers import assert_close, integers, normal

COUNTS = torch.tensor([0, 5, 20, 0, 10])
MODES = ("binary", "proportional")


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return (normal(generator, 9, 5) * 2).requires_grad_()


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    return torch.tensor([1, 2, 4])[integers(generator, 0, 3, 9)]


@pytest.mark.parametrize(
    ("mode", "alpha", "scale"),
    [
        ("binary", 0.5, [0.5, 1, 1, 0.5, 1]),
        ("binary", 0.0, [0, 1, 1, 0, 1]),
        ("binary", 0.9, [0.9, 1, 1, 0.9, 1]),
        ("proportional", 0.5, [0.5, 0.625, 1, 0.5, 0.75]),
        ("proportional", 0.0, [0, 0.25, 1, 0, 0.5]),
    ],
)
def test_against_the_equation(logits: Tensor, labels: Tensor, mode: str, alpha: float, scale: list[float]) -> None:
    losses = restricted(alpha, mode)(logits, labels, COUNTS)
    for row, label, loss in zip(logits.tolist(), labels.tolist(), losses.tolist(), strict=True):
        z = [s * f for s, f in zip(scale, row, strict=True)]
        assert loss == pytest.approx(math.log(sum(math.exp(v) for v in z)) - z[label], rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_identity_4_alpha_one_is_cross_entropy(logits: Tensor, labels: Tensor, mode: str) -> None:
    expected = functional.cross_entropy(logits, labels, reduction="none")
    assert_close(restricted(1.0, mode)(logits, labels, COUNTS), expected)


def test_alpha_zero_is_not_a_mask() -> None:
    """The missing class's logit is zero, not minus infinity: it still takes a share of the softmax."""
    loss = restricted(0.0)(torch.tensor([[3.0, 1.0]]), torch.tensor([1]), torch.tensor([0, 4]))
    assert loss.item() == pytest.approx(math.log(1 + math.e) - 1)


def test_defaults() -> None:
    assert restricted() == restricted(0.5, "binary")


@pytest.mark.parametrize("mode", MODES)
def test_gradcheck(mode: str, logits: Tensor, labels: Tensor) -> None:
    loss = restricted(0.3, mode)
    assert torch.autograd.gradcheck(lambda f: loss(f, labels, COUNTS), (logits,))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_extremes_stay_finite(mode: str, alpha: float) -> None:
    logits = (torch.tensor([[1, -1, 1, -1], [-1, 1, -1, 1]]) * 1e4).requires_grad_()
    losses = restricted(alpha, mode)(logits, torch.full((2,), 2), torch.tensor([0, 0, 50, 0]))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("mode", MODES)
def test_leading_axes_are_free(mode: str, generator: torch.Generator) -> None:
    """max n is each client's own."""
    loss = restricted(0.4, mode)
    logits, labels = normal(generator, 2, 3, 5, 4), integers(generator, 0, 4, 2, 3, 5)
    counts = integers(generator, 0, 9, 2, 3, 4)
    both = loss(logits, labels, counts)
    for s in range(2):
        assert_close(loss(logits[s], labels[s], counts[s]), both[s])
        for k in range(3):
            assert_close(loss(logits[s, k], labels[s, k], counts[s, k]), both[s, k])


@pytest.mark.parametrize("mode", MODES)
def test_half_precision_logits_are_computed_in_float32(mode: str, generator: torch.Generator) -> None:
    logits, labels, loss = normal(generator, 9, 5).bfloat16(), torch.full((9,), 2), restricted(0.5, mode)
    assert loss(logits, labels, COUNTS).dtype == torch.float32
    assert torch.equal(loss(logits, labels, COUNTS), loss(logits.float(), labels, COUNTS))


def test_wrong_requests(logits: Tensor, labels: Tensor) -> None:
    with pytest.raises(ValueError, match="counts have 4 classes, logits have 5"):
        restricted()(logits, labels, torch.ones(4))
    with pytest.raises(ValueError, match="mode is 'soft'; allowed: binary, proportional"):
        restricted(mode="soft")
    for alpha in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=re.escape(f"alpha is {alpha}; allowed: 0 to 1")):
            restricted(alpha)
