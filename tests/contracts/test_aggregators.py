"""What every aggregator must do."""

import dataclasses

import pytest
import torch

from fedskew.aggregators import Aggregate
from fedskew.core import tree
from tests.helpers import assert_close, assert_trees_close, normal
from tests.helpers.parts import AGGREGATORS

EVERY = pytest.mark.parametrize("part", AGGREGATORS.values(), ids=AGGREGATORS)
WEIGHTS = torch.tensor([10.0, 1.0, 60.0, 7.0], dtype=torch.float64)
TRAVEL = torch.tensor([0.3, 2.0, 0.1, 5.0], dtype=torch.float64)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_coefficient_per_client(part: Aggregate, dtype: torch.dtype) -> None:
    coefficients = part.coefficients(WEIGHTS.to(dtype), TRAVEL.to(dtype))
    assert coefficients.shape == (4,)
    assert coefficients.dtype == dtype
    assert torch.isfinite(coefficients).all()
    assert (coefficients > 0).all()


@EVERY
def test_weights_are_normalised_over_the_cohort(part: Aggregate) -> None:
    assert_close(part.coefficients(1e3 * WEIGHTS, TRAVEL), part.coefficients(WEIGHTS, TRAVEL))


@EVERY
def test_the_order_of_clients_does_not_matter(part: Aggregate) -> None:
    turned = torch.tensor([2, 0, 3, 1])
    assert_close(part.coefficients(WEIGHTS[turned], TRAVEL[turned]), part.coefficients(WEIGHTS, TRAVEL)[turned])


@EVERY
def test_equal_steps_give_the_weighted_mean(part: Aggregate) -> None:
    coefficients = part.coefficients(WEIGHTS, torch.full_like(TRAVEL, 0.7))
    assert_close(coefficients, WEIGHTS / WEIGHTS.sum())


@EVERY
def test_one_client_alone_is_the_model(part: Aggregate) -> None:
    assert part.coefficients(WEIGHTS[:1], TRAVEL[:1]).item() == pytest.approx(1.0)


@EVERY
def test_merging_clients_that_agree_changes_nothing(part: Aggregate, generator: torch.Generator) -> None:
    one = {"w": normal(generator, 3, 2), "b": normal(generator, 2)}
    coefficients = part.coefficients(WEIGHTS, torch.full_like(TRAVEL, 0.7))
    assert_trees_close(part.merge(tree.map(lambda leaf: leaf.expand(4, *leaf.shape), one), coefficients), one)


@EVERY
def test_linear_means_that_parts_may_be_added_up(part: Aggregate, generator: torch.Generator) -> None:
    values, coefficients = {"w": normal(generator, 4, 5)}, part.coefficients(WEIGHTS, TRAVEL)
    first, second = (part.merge(tree.rows(values, s), coefficients[s]) for s in (slice(0, 2), slice(2, 4)))
    alike = torch.allclose(tree.add(first, second)["w"], part.merge(values, coefficients)["w"])
    assert alike is part.linear


@EVERY
def test_pure(part: Aggregate) -> None:
    weights, travel = WEIGHTS.clone(), TRAVEL.clone()
    part.coefficients(weights, travel)
    assert torch.equal(weights, WEIGHTS)
    assert torch.equal(travel, TRAVEL)


@EVERY
def test_hashable_and_equal_by_value(part: Aggregate) -> None:
    twin = dataclasses.replace(part)  # type: ignore[type-var]
    assert twin == part
    assert hash(twin) == hash(part)


def test_aggregators_differ() -> None:
    assert len(set(AGGREGATORS.values())) == len(AGGREGATORS)
