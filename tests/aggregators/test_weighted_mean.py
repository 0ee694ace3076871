"""The weighted mean."""

import pytest
import torch

from fedskew.aggregators import weighted_mean


def test_shares_of_the_cohort() -> None:
    """Identity 6: weights are normalised over those that answered, whatever their unit."""
    weights = torch.tensor([10.0, 30.0, 60.0], dtype=torch.float64)
    travel = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64)
    assert weighted_mean().coefficients(weights, travel).tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert weighted_mean().coefficients(7 * weights, travel).tolist() == pytest.approx([0.1, 0.3, 0.6])


def test_one_client_is_everything() -> None:
    assert weighted_mean().coefficients(torch.tensor([3.0]), torch.tensor([9.0])).tolist() == [1.0]
    assert not weighted_mean().needs_travel
