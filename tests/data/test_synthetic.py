"""Synthetic(lambda, mu) against its definition, client by client."""

import math

import numpy as np
import pytest
import torch

from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.data import load_dataset
from fedskew.data.synthetic import synthetic


def own(data: Dataset, client: int) -> tuple[np.ndarray, np.ndarray]:
    """All of a client's examples, training part first."""
    assert data.client_train is not None
    assert data.client_test is not None
    train, test = data.client_train == client, data.client_test == client
    x = torch.cat([data.x_train[train], data.x_test[test]]).numpy()
    return x, torch.cat([data.y_train[train], data.y_test[test]]).numpy()


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(0.5, 2.0, seed=3, clients=12)


@pytest.mark.parametrize("max_size", [None, 2])
def test_clients_that_no_memory_holds_are_refused_before_the_first_is_drawn(max_size: int | None) -> None:
    with pytest.raises(ValueError, match=r"synthetic:1,1 needs at least [\d,.]+ GB, .* use fewer clients"):
        synthetic(1.0, 1.0, seed=0, clients=2**31 - 1, max_size=max_size)


def test_sizes(data: Dataset) -> None:
    """int(lognormal(4, 2)) + 50, the first number of the client's own stream; nine tenths are for training."""
    assert data.client_train is not None
    train = torch.bincount(data.client_train).tolist()
    for client in range(12):
        size = int(math.exp(4 + 2 * rng.stream(3, "data", client).standard_normal())) + 50
        assert len(own(data, client)[1]) == size
        assert train[client] == size * 9 // 10
    assert len(set(train)) > 6


def test_labels_are_the_argmax_of_the_clients_own_linear_model(data: Dataset) -> None:
    """The definition, one number after another; inputs are kept in single precision."""
    for client in (0, 5, 11):
        draw = rng.stream(3, "data", client)
        draw.standard_normal()
        u, center = 0.5 * draw.standard_normal(), 2.0 * draw.standard_normal()
        v = center + draw.standard_normal(60)
        weight, bias = u + draw.standard_normal((60, 10)), u + draw.standard_normal(10)
        x, y = own(data, client)
        noise = draw.standard_normal(x.shape)
        expected = np.array([[v[j] + (j + 1) ** -0.6 * row[j] for j in range(60)] for row in noise])
        np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-6)
        scores = expected @ weight + bias
        assert y.tolist() == scores.argmax(1).tolist()


def test_variance_falls_as_j_to_the_minus_1_2() -> None:
    """Within one client, whose mean does not vary; a large one, so that the estimate is good to some percent."""
    data = synthetic(1.0, 1.0, seed=0, clients=30)
    assert data.client_train is not None
    largest = int(torch.bincount(data.client_train).argmax())
    x, _ = own(data, largest)
    assert len(x) > 1000
    ratio = x.var(0) * np.arange(1, 61) ** 1.2
    assert np.abs(ratio - 1).max() < 5 * math.sqrt(2 / len(x))
    slope = np.polyfit(np.log(np.arange(1, 61)), np.log(x.var(0)), 1)[0]
    assert slope == pytest.approx(-1.2, abs=0.05)


def test_lambda_and_mu_are_standard_deviations() -> None:
    """Centres of clients: the mean of v_k over 60 coordinates is B_k with noise of 1/sqrt(60)."""
    data = synthetic(0.0, 3.0, seed=1, clients=300, max_size=50)
    centres = [own(data, client)[0].mean() for client in range(300)]
    assert np.std(centres) == pytest.approx(math.sqrt(9 + 1 / 60), rel=0.15)
    narrow = synthetic(0.0, 0.0, seed=1, clients=300, max_size=50)
    assert np.std([own(narrow, client)[0].mean() for client in range(300)]) == pytest.approx(60**-0.5, rel=0.15)


def test_lambda_changes_no_label() -> None:
    """It moves the scores of all classes alike."""
    one, other = synthetic(0, 1, 0, 5, max_size=90), synthetic(3, 1, 0, 5, max_size=90)
    assert torch.equal(one.x_train, other.x_train)
    assert torch.equal(one.y_train, other.y_train)
    assert not torch.equal(one.x_train, synthetic(0, 2, 0, 5, max_size=90).x_train)


def test_federations_of_different_size_share_their_first_clients() -> None:
    few, many = synthetic(1, 1, seed=5, clients=3, max_size=200), synthetic(1, 1, seed=5, clients=8, max_size=200)
    for client in range(3):
        for a, b in zip(own(few, client), own(many, client), strict=True):
            assert np.array_equal(a, b)


def test_seeds_and_clients_differ() -> None:
    one, two = (synthetic(1, 1, seed=seed, clients=2, max_size=60) for seed in (0, 1))
    assert not np.array_equal(own(one, 0)[0][:5], own(two, 0)[0][:5])
    assert not np.array_equal(own(one, 0)[0][:5], own(one, 1)[0][:5])
    again = synthetic(1, 1, seed=0, clients=2, max_size=60)
    assert torch.equal(one.x_train, again.x_train)


def test_max_size() -> None:
    data = synthetic(1, 1, seed=0, clients=10, max_size=70)
    sizes = [len(own(data, client)[1]) for client in range(10)]
    assert max(sizes) == 70
    assert min(sizes) >= 50
    tiny = synthetic(1, 1, seed=0, clients=4, max_size=2)
    assert (len(tiny.y_train), len(tiny.y_test)) == (4, 4)


def test_shape_and_type(data: Dataset) -> None:
    assert data.input_shape == (60,)
    assert data.num_classes == 10
    assert data.x_train.dtype == torch.float32
    assert data.y_train.dtype == torch.int64
    assert data.name == "synthetic:0.5,2"


def test_by_spec() -> None:
    made = load_dataset("synthetic:1,0.5,max_size=60", seed=2, clients=3)
    assert torch.equal(made.x_train, synthetic(1.0, 0.5, seed=2, clients=3, max_size=60).x_train)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 1.0), "lambda is -1.0; allowed: 0 or more"),
        ((1.0, math.nan), "mu is nan; allowed: 0 or more"),
        ((math.inf, 1.0), "lambda is inf; allowed: 0 or more"),
    ],
)
def test_bad_numbers(arguments: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic(*arguments, seed=0, clients=2)


def test_bad_max_size() -> None:
    with pytest.raises(ValueError, match="max_size is 1; allowed: 2 or more"):
        synthetic(1, 1, seed=0, clients=2, max_size=1)
