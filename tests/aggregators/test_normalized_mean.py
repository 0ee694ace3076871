"""The normalised mean of FedNova."""

import pytest
import torch

from fedskew.aggregators import normalized_mean, weighted_mean
from fedskew.optimizers import sgd
from tests.helpers import assert_close, normal

WEIGHTS = torch.tensor([10.0, 30.0, 60.0], dtype=torch.float64)


def test_by_hand() -> None:
    """p = (1/2, 1/2), tau = (1, 3): tau_eff = 2 and the coefficients are 1 and 1/3, which is no average."""
    coefficients = normalized_mean().coefficients(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 3.0]))
    assert coefficients.tolist() == pytest.approx([1.0, 1 / 3])


def test_against_the_equation(generator: torch.Generator) -> None:
    """delta = tau_eff * sum_i p_i delta_i / tau_i."""
    deltas, tau = normal(generator, 3, 4), torch.tensor([2.0, 7.0, 3.0], dtype=torch.float64)
    p = [0.1, 0.3, 0.6]
    tau_eff = sum(share * t for share, t in zip(p, tau.tolist(), strict=True))
    expected = tau_eff * sum(p[i] * deltas[i] / tau[i] for i in range(3))
    assert_close(normalized_mean().coefficients(WEIGHTS, tau) @ deltas, expected)


def test_identity_6_same_steps_is_the_weighted_mean() -> None:
    travel = torch.full((3,), 4.2, dtype=torch.float64)
    expected = weighted_mean().coefficients(WEIGHTS, travel)
    assert_close(normalized_mean().coefficients(WEIGHTS, travel), expected)


def test_identity_6_equal_deltas_with_equal_steps_are_a_fixed_point(generator: torch.Generator) -> None:
    delta = normal(generator, 5)
    coefficients = normalized_mean().coefficients(WEIGHTS, torch.full((3,), 0.07, dtype=torch.float64))
    assert_close(coefficients @ delta.expand(3, 5), delta)


def test_identity_6_weights_are_normalised() -> None:
    travel = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64)
    assert_close(normalized_mean().coefficients(9 * WEIGHTS, travel), normalized_mean().coefficients(WEIGHTS, travel))


def test_the_learning_rate_cancels() -> None:
    steps = torch.tensor([1, 5, 2])
    slow, fast = (normalized_mean().coefficients(WEIGHTS, sgd(lr).travel(steps)) for lr in (0.001, 10.0))
    assert_close(slow, fast)
    assert normalized_mean().needs_travel


def test_clients_with_the_same_direction_move_tau_eff_steps() -> None:
    """Every client met the constant unit gradient: together they move the mean number of steps."""
    travel = sgd(0.1, 0.9).travel(torch.tensor([3, 10, 40]))
    coefficients = normalized_mean().coefficients(WEIGHTS, travel)
    expected = (WEIGHTS / WEIGHTS.sum() * travel).sum()
    assert_close((coefficients * travel).sum(), expected)
