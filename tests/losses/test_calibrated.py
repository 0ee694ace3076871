"""The calibrated loss against a naive derivation, its identities, and its limits."""

import math
import re
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedskew.losses import calibrated
from tests.helpers import assert_close, integers, normal
from tests.helpers.parts import DENOMINATORS, MISSING

COUNTS = torch.tensor([0, 1, 7, 120, 0, 2500])
PRESENT = torch.tensor([1, 2, 3, 5])
EVERY = [pytest.param(m, d, id=f"{m}-{d}") for m, d in product(MISSING, DENOMINATORS)]


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return (normal(generator, 9, 6) * 2).requires_grad_()


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    return PRESENT[integers(generator, 0, 4, 9)]


def naive(row: list[float], label: int, counts: list[int], tau: float, missing: str, denominator: str) -> float:
    """Equation 7 of the paper with raw exponentials, class after class."""
    z = {}
    for i, (f, n) in enumerate(zip(row, counts, strict=True)):
        if n == 0 and missing == "mask":
            continue
        held = n if n > 0 else {"floor": 1, "epsilon": 1e-8}[missing]
        z[i] = f - tau / math.sqrt(math.sqrt(held))
    over = [math.exp(value) for i, value in z.items() if denominator == "all" or i != label]
    return -math.log(math.exp(z[label]) / sum(over))


@pytest.mark.parametrize(("missing", "denominator"), EVERY)
@pytest.mark.parametrize("tau", [0.0, 0.1, 1.0, 5.0])
def test_against_the_equation(logits: Tensor, labels: Tensor, tau: float, missing: str, denominator: str) -> None:
    losses = calibrated(tau, missing, denominator)(logits, labels, COUNTS)
    assert losses.dtype == torch.float64
    for row, label, loss in zip(logits.tolist(), labels.tolist(), losses.tolist(), strict=True):
        expected = naive(row, label, COUNTS.tolist(), tau, missing, denominator)
        assert loss == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_defaults() -> None:
    assert calibrated() == calibrated(tau=5.0, missing="floor", denominator="all")


@pytest.mark.parametrize("missing", MISSING)
def test_identity_1_all_is_softplus_of_others(logits: Tensor, labels: Tensor, missing: str) -> None:
    every, others = (calibrated(3.0, missing, d)(logits, labels, COUNTS) for d in DENOMINATORS)
    assert_close(every, functional.softplus(others))


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize(
    ("tau", "counts"), [(7.0, [35] * 6), (0.0, [1, 2, 3, 4, 5, 6000])], ids=["equal counts", "tau 0"]
)
def test_identity_2_is_cross_entropy(
    logits: Tensor, labels: Tensor, missing: str, tau: float, counts: list[int]
) -> None:
    expected = functional.cross_entropy(logits, labels, reduction="none")
    assert_close(calibrated(tau, missing)(logits, labels, torch.tensor(counts)), expected)


def test_identity_3_mask_is_cross_entropy_over_the_present_classes(logits: Tensor, labels: Tensor) -> None:
    """With tau = 0 exactly so, and with any tau after the margins of the present classes."""
    place = torch.zeros(6, dtype=torch.int64)
    place[PRESENT] = torch.arange(4)
    for tau in (0.0, 2.0):
        margins = tau * COUNTS[PRESENT].double() ** -0.25
        expected = functional.cross_entropy(logits[:, PRESENT] - margins, place[labels], reduction="none")
        assert_close(calibrated(tau, "mask")(logits, labels, COUNTS), expected)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_identity_3_a_masked_class_gets_exactly_no_gradient(logits: Tensor, labels: Tensor, denominator: str) -> None:
    calibrated(1.0, "mask", denominator)(logits, labels, COUNTS).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[:, COUNTS == 0] == 0).all()
    assert (logits.grad[:, COUNTS > 0] != 0).all()


@pytest.mark.parametrize("tau", [0.0, 1.0, 20.0])
def test_identity_3_floor_is_cross_entropy_of_shifted_logits(logits: Tensor, labels: Tensor, tau: float) -> None:
    shifted = logits - tau * COUNTS.double().clamp(min=1) ** -0.25
    expected = functional.cross_entropy(shifted, labels, reduction="none")
    assert_close(calibrated(tau, "floor")(logits, labels, COUNTS), expected)


def test_a_floored_class_keeps_the_margin_tau() -> None:
    """Two classes, equal logits, one missing and the other with one example: nothing to choose between them."""
    loss = calibrated(5.0, "floor")(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]), torch.tensor([1, 0]))
    assert loss.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_epsilon_has_a_margin_of_100_tau(dtype: torch.dtype) -> None:
    tau = 0.02
    logits = torch.zeros(1, 2, dtype=dtype)
    loss = calibrated(tau, "epsilon", "others")(logits, torch.tensor([0]), torch.tensor([1, 0]))
    assert loss.item() == pytest.approx(-100 * tau + tau, rel=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("missing", "denominator"), EVERY)
@pytest.mark.parametrize("counts", [[0, 0, 50, 0], [3, 0, 900, 0], [1, 1, 1, 1]], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_extremes_stay_finite(
    missing: str, denominator: str, counts: list[int], scale: float, dtype: torch.dtype
) -> None:
    rows = [[1, -1, 1, -1], [-1, 1, -1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [-1, -1, 1, 0]]
    logits = (torch.tensor(rows, dtype=dtype) * scale).requires_grad_()
    for tau in (0.0, 1.0, 50.0):
        logits.grad = None
        losses = calibrated(tau, missing, denominator)(logits, torch.full((5,), 2), torch.tensor(counts))
        losses.sum().backward()
        assert torch.isfinite(losses).all()
        assert logits.grad is not None
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_tau_zero_with_missing_classes_has_no_nan(
    logits: Tensor, labels: Tensor, missing: str, denominator: str
) -> None:
    losses = calibrated(0.0, missing, denominator)(logits, labels, COUNTS)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    if missing != "mask":
        plain = calibrated(0.0, "floor", denominator)(logits, labels, torch.ones(6))
        assert_close(losses, plain)


def test_others_with_nothing_left_is_zero_with_zero_gradient(logits: Tensor) -> None:
    only = torch.tensor([0, 0, 0, 9, 0, 0])
    losses = calibrated(1.0, "mask", "others")(logits, torch.full((9,), 3), only)
    losses.sum().backward()
    assert (losses == 0).all()
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_the_printed_form_has_gradient_minus_one_for_ever(logits: Tensor, labels: Tensor) -> None:
    """Why `all` is the default."""
    calibrated(1.0, "floor", "others")(logits, labels, COUNTS).sum().backward()
    assert logits.grad is not None
    picked = logits.grad.gather(1, labels.unsqueeze(1))
    assert_close(picked, torch.full_like(picked, -1.0))


@pytest.mark.parametrize(("missing", "denominator"), EVERY)
def test_gradcheck(missing: str, denominator: str, logits: Tensor, labels: Tensor) -> None:
    loss = calibrated(0.05, missing, denominator)
    assert torch.autograd.gradcheck(lambda f: loss(f, labels, COUNTS), (logits,))


@pytest.mark.parametrize(("missing", "denominator"), EVERY)
def test_leading_axes_are_free(missing: str, denominator: str, generator: torch.Generator) -> None:
    """[S, K, B, C] and [K, B, C] equal a loop over clients, each with its own counts."""
    loss = calibrated(1.5, missing, denominator)
    logits, labels = normal(generator, 2, 3, 5, 4), integers(generator, 0, 2, 2, 3, 5)
    counts = integers(generator, 0, 9, 2, 3, 4)
    counts[..., :2] += 1
    both = loss(logits, labels, counts)
    assert both.shape == (2, 3, 5)
    for s in range(2):
        assert_close(loss(logits[s], labels[s], counts[s]), both[s])
        for k in range(3):
            assert_close(loss(logits[s, k], labels[s, k], counts[s, k]), both[s, k])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("missing", "denominator"), EVERY)
def test_half_precision_logits_are_computed_in_float32(
    missing: str, denominator: str, half: torch.dtype, generator: torch.Generator
) -> None:
    logits = normal(generator, 9, 6).to(half)
    labels = PRESENT[integers(generator, 0, 4, 9)]
    loss = calibrated(1.0, missing, denominator)
    assert loss(logits, labels, COUNTS).dtype == torch.float32
    assert torch.equal(loss(logits, labels, COUNTS), loss(logits.float(), labels, COUNTS))


def test_rare_classes_get_the_larger_push(generator: torch.Generator) -> None:
    """At equal logits the loss of a rare label is larger than of a common one."""
    losses = calibrated(1.0)(torch.zeros(3, 3), torch.arange(3), torch.tensor([1, 100, 10_000]))
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("tau", [-1.0, math.nan, math.inf])
def test_bad_tau(tau: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"tau is {tau}; allowed: 0 or more")):
        calibrated(tau)


def test_bad_words() -> None:
    with pytest.raises(ValueError, match="missing is 'drop'; allowed: floor, mask, epsilon"):
        calibrated(missing="drop")
    with pytest.raises(ValueError, match="denominator is 'some'; allowed: all, others"):
        calibrated(denominator="some")


@pytest.mark.parametrize("classes", [5, 7, 1])
def test_counts_of_the_wrong_length(logits: Tensor, labels: Tensor, classes: int) -> None:
    with pytest.raises(ValueError, match=f"counts have {classes} classes, logits have 6"):
        calibrated()(logits, labels, torch.ones(classes))
