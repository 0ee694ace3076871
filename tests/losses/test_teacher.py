"""Distillation over some of the classes against the equation, class after class, and its identities."""

import math

import pytest
import torch
from torch import Tensor

from fedskew.losses import distillation
from tests.helpers import assert_close, integers, normal
from tests.helpers.views import view

CLASSES = ("not_true", "major", "vacant")
COUNTS = torch.tensor([0, 3, 40, 7, 0, 25])
"""The mean is 12.5: 2 and 5 are major, 0 and 4 vacant."""
PRESENT = torch.tensor([1, 2, 3, 5])
EVERY = pytest.mark.parametrize("classes", CLASSES)


@pytest.fixture
def problem(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels and the teacher's logits."""
    labels = PRESENT[integers(generator, 0, 4, 9)]
    return normal(generator, 9, 6) * 2, labels, normal(generator, 9, 6) * 2


def naive(f: list[float], t: list[float], y: int, T: float, classes: str) -> float:
    """Raw exponentials over sets of classes."""
    counts, every = COUNTS.tolist(), range(6)
    ours = [c for c in every if counts[c] == 0] if classes == "vacant" else [c for c in every if c != y]
    theirs = [c for c in ours if counts[c] <= sum(counts) / 6] if classes == "major" else ours
    q = {c: math.exp(t[c] / T) / sum(math.exp(t[i] / T) for i in theirs) for c in theirs}
    p = {c: math.exp(f[c] / T) / sum(math.exp(f[i] / T) for i in ours) for c in ours}
    return T**2 * sum(q[c] * math.log(q[c] / p[c]) for c in theirs)


@EVERY
@pytest.mark.parametrize("T", [0.5, 1.0, 3.0])
def test_against_the_equation(problem: tuple[Tensor, ...], T: float, classes: str) -> None:
    logits, labels, teacher = problem
    found = distillation(0.3, T, classes)(view(logits, labels, COUNTS, teacher=teacher))
    assert found.dtype == torch.float64
    rows = zip(logits.tolist(), teacher.tolist(), labels.tolist(), found.tolist(), strict=True)
    for f, t, y, value in rows:
        assert value == pytest.approx(0.3 * naive(f, t, y, T, classes), rel=1e-11, abs=1e-13)


@EVERY
def test_the_gradient_is_the_difference_of_shares(problem: tuple[Tensor, ...], classes: str) -> None:
    """d/df_c = beta T (p_c - q_c), and 0 for classes that take no part."""
    logits, labels, teacher = problem
    logits = logits.requires_grad_()
    seen = view(logits, labels, COUNTS, teacher=teacher)
    loss = distillation(0.3, 2.0, classes)
    loss(seen).sum().backward()
    theirs, ours = loss.sets(seen)
    q = (teacher / 2).masked_fill(~theirs, -math.inf).softmax(-1)
    p = (logits.detach() / 2).masked_fill(~ours, -math.inf).softmax(-1)
    assert logits.grad is not None
    assert_close(logits.grad, 0.3 * 2.0 * (p - q))


@pytest.mark.parametrize("classes", ["not_true", "vacant"])
def test_a_model_that_agrees_with_its_teacher_is_left_alone(problem: tuple[Tensor, ...], classes: str) -> None:
    logits, labels, _ = problem
    leaf = logits.clone().requires_grad_()
    values = distillation(1.0, 3.0, classes)(view(leaf, labels, COUNTS, teacher=logits))
    values.sum().backward()
    assert leaf.grad is not None
    assert_close(values, torch.zeros(9, dtype=torch.float64))
    assert_close(leaf.grad, torch.zeros_like(leaf))


def test_major_moves_even_a_model_that_agrees(problem: tuple[Tensor, ...]) -> None:
    """The teacher leaves out classes that the client's own shares keep."""
    logits, labels, _ = problem
    assert (distillation(classes="major")(view(logits, labels, COUNTS, teacher=logits)) > 1e-4).all()


def test_the_sets() -> None:
    seen = view(torch.zeros(1, 6), torch.tensor([3]), COUNTS)
    theirs, ours = distillation(classes="major").sets(seen)
    assert theirs.tolist() == [[True, True, False, False, True, False]]
    assert ours.tolist() == [[True, True, True, False, True, True]]
    assert distillation(classes="vacant").sets(seen)[0].tolist() == [[True, False, False, False, True, False]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("counts", "labels", "classes"),
    [
        ([3, 5, 1], [0, 2], "vacant"),  # nothing is missing
        ([9, 9, 0], [2, 2], "major"),  # all but the true class are major
        ([4], [0, 0], "not_true"),  # there is no other class
    ],
)
def test_no_class_left_is_exactly_zero(
    counts: list[int], labels: list[int], classes: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    logits = normal(generator, 2, len(counts), dtype=torch.float32).to(dtype).requires_grad_()
    teacher = normal(generator, 2, len(counts), dtype=torch.float32).to(dtype)
    seen = view(logits, torch.tensor(labels), torch.tensor(counts), teacher=teacher)
    values = distillation(classes=classes)(seen)
    values.sum().backward()
    assert logits.grad is not None
    assert values.tolist() == [0.0, 0.0]
    assert not logits.grad.any()


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype, classes: str, problem: tuple[Tensor, ...]) -> None:
    logits, labels, teacher = (problem[0].to(dtype) * 50).requires_grad_(), problem[1], problem[2].to(dtype) * 50
    values = distillation(classes=classes)(view(logits, labels, COUNTS, teacher=teacher))
    values.sum().backward()
    exact = distillation(classes=classes)(view(logits.double(), labels, COUNTS, teacher=teacher.double()))
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), exact, rtol=1e-5, atol=1e-4)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@EVERY
def test_leading_axes_are_free(classes: str, generator: torch.Generator) -> None:
    logits, teacher = normal(generator, 3, 4, 6), normal(generator, 3, 4, 6)
    labels, counts = integers(generator, 0, 3, 3, 4), integers(generator, 1, 30, 3, 6)
    counts[:, 4:] *= integers(generator, 0, 2, 3, 2)
    loss = distillation(classes=classes)
    both = loss(view(logits, labels, counts, teacher=teacher))
    for k in range(3):
        assert_close(loss(view(logits[k], labels[k], counts[k], teacher=teacher[k])), both[k])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"beta": -1.0}, "beta is -1.0"),
        ({"T": 0.0}, "T is 0.0"),
        ({"T": math.inf}, "T is inf"),
        ({"classes": "minor"}, "not_true, major, vacant"),
    ],
)
def test_arguments_that_are_refused(given: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        distillation(**given)  # type: ignore[arg-type]
