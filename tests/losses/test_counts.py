"""What a missing class counts as, and what is refused."""

import math
from typing import Any

import pytest
import torch

from fedskew.losses import adjusted, calibrated, check_labels, restricted
from fedskew.losses.counts import check_length, filled, hidden, log_prior

COUNTS = torch.tensor([0, 1, 16, 0])


def test_filled() -> None:
    assert filled(COUNTS, "floor", torch.float64).tolist() == [1.0, 1.0, 16.0, 1.0]
    assert filled(COUNTS, "mask", torch.float64).tolist() == [1.0, 1.0, 16.0, 1.0]
    assert filled(COUNTS, "epsilon", torch.float64).tolist() == [1e-8, 1.0, 16.0, 1e-8]
    assert filled(COUNTS, "floor", torch.float32).dtype == torch.float32


def test_hidden() -> None:
    offset = torch.arange(4.0)
    assert hidden(offset, COUNTS, "mask").tolist() == [-math.inf, 1.0, 2.0, -math.inf]
    assert hidden(offset, COUNTS, "floor").tolist() == offset.tolist()
    assert hidden(offset, COUNTS, "epsilon").tolist() == offset.tolist()


def test_check_length() -> None:
    check_length(torch.zeros(2, 5, 4), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="counts have 3 classes, logits have 4"):
        check_length(torch.zeros(5, 4), torch.zeros(3))


@pytest.mark.parametrize("loss", [calibrated(), adjusted(), restricted(), restricted(mode="proportional")], ids=repr)
def test_every_loss_refuses_shares(loss: Any) -> None:
    """They were counted as one example each, which is no calibration at all."""
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"counts have 0\.9; allowed: numbers of examples, 0 or at least 1.*fraction"):
        loss(logits, labels, torch.tensor([0.9, 0.0, 0.1]))
    assert loss(logits, labels, torch.tensor([9.0, 1.0, 0.0])).isfinite().all()


def test_check_labels() -> None:
    check_labels(torch.tensor([1, 2, 1]), COUNTS)
    for wrong in (4, -1):
        with pytest.raises(ValueError, match=f"label {wrong} is outside 0..3"):
            check_labels(torch.tensor([1, wrong]), COUNTS)
    with pytest.raises(ValueError, match="a training label is class 3, whose count is 0"):
        check_labels(torch.tensor([1, 3]), COUNTS)


def test_the_prior_is_the_rule_of_bayes():
    """Two classes with means -1 and 1 and unit variance: the odds of the second are exp(2x) where both are as frequent,
    and exp(2x) N_2/N_1 for a model of everybody's examples. A client's own are exp(2x) n_2/n_1."""
    x = torch.linspace(-4, 4, 9, dtype=torch.float64)
    own, everybody = torch.tensor([10, 90]), torch.tensor([800, 200])
    balanced = torch.stack([-x, x], -1)
    right = (2 * x).exp() * 9
    trained = balanced + everybody.log()
    for outputs in (balanced + log_prior(own), trained + log_prior(own, everybody)):
        torch.testing.assert_close((outputs[:, 1] - outputs[:, 0]).exp(), right)


def test_a_prior_of_classes_without_examples():
    own, everybody = torch.tensor([50, 0, 0]), torch.tensor([100, 20, 0])
    assert log_prior(own).exp().tolist() == pytest.approx([50, 1, 1])
    assert log_prior(own, everybody).exp().tolist() == pytest.approx([1 / 2, 1 / 20, 1 / 20])
