"""What is said of a model that is no better than guessing."""

from typing import Any

import numpy as np
import pytest
import torch

from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import guessed
from fedskew.runs.remarks import guessing_words


def data_of(*sizes: int) -> Dataset:
    """Data with this many test examples of each class."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return Dataset("mine", y[:, None].float(), y, y[:, None].float(), y, len(sizes))


def said(data: Dataset, accuracy: float, balanced: float, **more: Any) -> str | None:
    classes = data.num_classes
    result = {"accuracy": accuracy, "balanced_accuracy": balanced, "diverged": False, **more}
    session = dict(zip(("guessing_accuracy", "guessing_balanced_accuracy"), guessed(data), strict=True))
    return guessing_words({"per_class_accuracy": [0.1] * classes, **result}, session)


@pytest.mark.parametrize("sizes", [[40] * 10, [300, 30, 30, 5], [1000, 10], [7, 0, 7]])
def test_models_that_guess_are_found_out(sizes: list[int]) -> None:
    """Answers that do not depend on the example, in any proportion: 2.3 % of them seem better by two errors. Few
    examples have few accuracies, so that more or fewer of them lie beyond."""
    data, numbers = data_of(*sizes), np.random.default_rng(0)
    y, present = data.y_test.numpy(), [c for c, n in enumerate(sizes) if n]
    found = []
    for _ in range(2000):
        shares = numbers.dirichlet(np.ones(len(sizes)))
        right = numbers.choice(len(sizes), len(y), p=shares) == y
        balanced = float(np.mean([right[y == c].mean() for c in present]))
        found.append(said(data, float(right.mean()), balanced) is not None)
    assert np.mean(found) > 0.95


def test_what_a_newcomer_saw() -> None:
    """6.67 % of 3 classes, and 10.70 % of 10."""
    assert "up to 57.68 %" in str(said(data_of(5, 5, 5), 0.0667, 0.0667))
    assert "up to 13.16 %" in str(said(data_of(*[36] * 10), 0.107, 0.107))


def test_a_model_that_knows_something_is_not_blamed() -> None:
    assert said(data_of(*[36] * 10), 0.14, 0.14) is None
    assert said(data_of(*[1000] * 10), 0.107, 0.107) is None
    assert said(data_of(500, 500, *[1] * 60), 0.8, 0.02) is None, "few examples of rare classes hide it"
    assert said(data_of(900, 100), 0.9, 0.5) is not None, "the most frequent class"
    assert said(data_of(*[36] * 10), 0.1, 0.1, diverged=True) is None


def test_a_run_of_an_earlier_version_is_compared_with_guessing_itself() -> None:
    result = {"accuracy": 0.3, "diverged": False, "per_class_accuracy": [0.5, None, 0.5]}
    assert guessing_words({**result, "balanced_accuracy": 0.5}, {}) is not None
    assert guessing_words({**result, "balanced_accuracy": 0.51}, {}) is None
