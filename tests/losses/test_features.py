"""Decorrelated features against the equation with loops, and what padding must not do to them."""

import pytest
import torch
from torch import Tensor

from fedskew.core.view import View
from fedskew.losses import decorrelation
from tests.helpers import assert_close, normal
from tests.helpers.views import view


def seen(features: Tensor | None, mask: Tensor | None = None, batch: int = 7) -> View:
    lead = () if features is None else features.shape[:-2]
    batch = batch if features is None else features.shape[-2]
    labels, counts = torch.zeros(*lead, batch, dtype=torch.int64), torch.ones(*lead, 3)
    return view(torch.zeros(*lead, batch, 3), labels, counts, mask=mask, features=features)


def naive(features: Tensor) -> float:
    """The mean over pairs of features of their squared sum of products, over the number of examples."""
    columns, n = features.T, len(features)
    z = [(column - column.mean()) / (column.var(unbiased=True) + 1e-8).sqrt() for column in columns]
    pairs = [float((z[i] * z[j]).sum() ** 2) for i in range(len(z)) for j in range(len(z)) if i != j]
    return sum(pairs) / len(pairs) / n


@pytest.mark.parametrize(("examples", "features"), [(7, 4), (4, 7), (5, 5), (2, 3), (3, 2)])
def test_against_the_equation(examples: int, features: int, generator: torch.Generator) -> None:
    given = normal(generator, examples, features) * 3 + 1
    found = decorrelation(0.1)(seen(given))
    assert found.shape == (examples,)
    assert_close(found, torch.full((examples,), 0.1 * naive(given), dtype=torch.float64), rtol=1e-11)


@pytest.mark.parametrize("features", [4, 12])
def test_padding_changes_nothing(features: int, generator: torch.Generator) -> None:
    given = (normal(generator, 6, features) * 3).requires_grad_()
    whole = decorrelation()(seen(given))
    whole.mean().backward()
    padded = torch.cat([given.detach(), 100 * normal(generator, 3, features)]).requires_grad_()
    mask = torch.tensor([True] * 6 + [False] * 3)
    values = decorrelation()(seen(padded, mask))
    (values * mask / mask.sum()).sum().backward()
    assert_close(values[:6], whole)
    assert given.grad is not None
    assert padded.grad is not None
    assert_close(padded.grad[:6], given.grad)
    assert not padded.grad[6:].any()


@pytest.mark.parametrize("mask", [None, torch.tensor([True]), torch.tensor([True, False, False])])
def test_one_example_is_zero(mask: Tensor | None, generator: torch.Generator) -> None:
    features = normal(generator, 1 if mask is None else len(mask), 5).requires_grad_()
    values = decorrelation()(seen(features, mask))
    values.sum().backward()
    assert not values.any()
    assert features.grad is not None
    assert not features.grad.any()


def test_one_feature_has_no_other() -> None:
    line = torch.arange(6, dtype=torch.float64).view(6, 1)
    assert_close(decorrelation()(seen(line)), torch.zeros(6, dtype=torch.float64))


def test_features_that_never_move_take_no_part(generator: torch.Generator) -> None:
    features = normal(generator, 6, 4)
    features[:, 1] = 0.0
    leaf = features.requires_grad_()
    values = decorrelation()(seen(leaf))
    values.sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    assert not leaf.grad[:, 1].any()
    kept = features.detach()[:, [0, 2, 3]]
    assert float(values[0].detach()) == pytest.approx(0.1 * naive(kept) * 6 / 12)  # of twelve pairs six are left


def test_uncorrelated_features_cost_nothing() -> None:
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert_close(decorrelation()(seen(square)), torch.zeros(4))


def test_leading_axes_are_free(generator: torch.Generator) -> None:
    features = normal(generator, 2, 3, 6, 5)
    mask = torch.arange(6) < torch.tensor([[6, 4, 2], [3, 1, 5]]).unsqueeze(-1)
    both = decorrelation()(seen(features, mask))
    for s in range(2):
        for k in range(3):
            kept = features[s, k][mask[s, k]]
            assert_close(both[s, k, 0], decorrelation()(seen(kept))[0])


def test_bfloat16_features_under_autocast(generator: torch.Generator) -> None:
    features = normal(generator, 8, 6).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        values = decorrelation()(seen(features))
    assert values.dtype == torch.float32
    assert float(values[0]) == pytest.approx(0.1 * naive(features.double()), rel=1e-5)


def test_a_model_without_features_is_told_so() -> None:
    with pytest.raises(ValueError, match="feddecorr needs the model's features"):
        decorrelation()(seen(None))
    with pytest.raises(ValueError, match="beta is -1"):
        decorrelation(-1)
