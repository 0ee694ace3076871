"""The adaptive optimisers of FedOpt against a scalar loop."""

import math
import re
from collections.abc import Callable

import pytest
import torch

from fedskew.optimizers import OPTIMIZERS, adagrad, adam, yogi
from fedskew.optimizers.adaptive import Adaptive

GRADIENTS = [0.3, -1.2, 0.0, 5.0, -0.01, 0.02, -3.0, 1e-4]


def by_hand(rule: str, lr: float, b1: float, b2: float, eps: float) -> list[float]:
    """Algorithm 2 of Reddi et al. in the words of the paper: delta = -g, x_{t+1} = x_t + lr m / (sqrt(v) + eps)."""
    x, m, v, path = 2.0, 0.0, eps**2, []
    for g in GRADIENTS:
        delta = -g
        m = b1 * m + (1 - b1) * delta
        if rule == "adagrad":
            v = v + delta**2
        elif rule == "adam":
            v = b2 * v + (1 - b2) * delta**2
        else:
            sign = (v > delta**2) - (v < delta**2)
            v = v - (1 - b2) * delta**2 * sign
        x = x + lr * m / (math.sqrt(v) + eps)
        path.append(x)
    return path


def ours(part: Adaptive) -> list[float]:
    params = {"w": torch.tensor([2.0], dtype=torch.float64)}
    state, path = part.init(params), []
    for g in GRADIENTS:
        updates, state = part.update({"w": torch.tensor([g], dtype=torch.float64)}, state, params, part.lr)
        params = {"w": params["w"] + updates["w"]}
        path.append(params["w"].item())
    return path


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        (adagrad(), ("adagrad", 0.01, 0.0, 0.0, 1e-3)),
        (adam(), ("adam", 0.01, 0.9, 0.99, 1e-3)),
        (yogi(), ("yogi", 0.01, 0.9, 0.99, 1e-3)),
        (adagrad(0.3, eps=0.1), ("adagrad", 0.3, 0.0, 0.0, 0.1)),
        (adam(0.3, 0.5, 0.7, 0.1), ("adam", 0.3, 0.5, 0.7, 0.1)),
        (yogi(0.3, 0.5, 0.7, 0.1), ("yogi", 0.3, 0.5, 0.7, 0.1)),
    ],
)
def test_against_a_scalar_loop(part: Adaptive, arguments: tuple[str, float, float, float, float]) -> None:
    assert ours(part) == pytest.approx(by_hand(*arguments), rel=1e-12)


def test_the_rules_differ() -> None:
    paths = [by_hand(rule, 0.01, 0.9, 0.99, 1e-3) for rule in ("adagrad", "adam", "yogi")]
    assert len({round(path[-1], 6) for path in paths}) == 3


@pytest.mark.parametrize("make", [adagrad, adam, yogi])
def test_v_starts_at_eps_squared_and_m_at_zero(make: Callable[..., Adaptive]) -> None:
    state = make(eps=0.5).init({"w": torch.ones(2)})
    assert state["m/w"].tolist() == [0.0, 0.0]
    assert state["v/w"].tolist() == [0.25, 0.25]


@pytest.mark.parametrize("make", [adagrad, adam, yogi])
def test_no_bias_correction(make: Callable[..., Adaptive]) -> None:
    """The first step is not lr * sign(g)."""
    part = make(0.01)
    grads = {"w": torch.tensor([1.0], dtype=torch.float64)}
    updates, _ = part.update(grads, part.init(grads), grads, part.lr)
    m = 1.0 if make is adagrad else 0.1
    v = 1e-6 + 1.0 if make is adagrad else {adam: 0.99e-6 + 0.01, yogi: 1e-6 + 0.01}[make]
    assert updates["w"].item() == pytest.approx(-0.01 * m / (math.sqrt(v) + 1e-3), rel=1e-12)


@pytest.mark.parametrize("make", [adagrad, adam, yogi])
def test_has_no_travel(make: Callable[..., Adaptive]) -> None:
    with pytest.raises(ValueError, match="SCAFFOLD and FedNova need sgd on the client"):
        make().travel(torch.tensor(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.0}, "lr is 0.0; allowed: above 0"),
        ({"lr": math.nan}, "lr is nan; allowed: above 0"),
        ({"lr": math.inf}, "lr is inf; allowed: above 0"),
        ({"eps": 0.0}, "eps is 0.0; allowed: above 0"),
        ({"eps": math.nan}, "eps is nan; allowed: above 0"),
        ({"b1": 1.0}, "b1 is 1.0; allowed: 0 or more, below 1"),
        ({"b1": math.nan}, "b1 is nan; allowed: 0 or more, below 1"),
        ({"b2": -0.1}, "b2 is -0.1; allowed: 0 or more, below 1"),
    ],
)
def test_bad_numbers(arguments: dict[str, float], message: str) -> None:
    for make in (adam, yogi):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(**arguments)


def test_all_are_named() -> None:
    assert set(OPTIMIZERS) == {"sgd", "adagrad", "adam", "yogi"}
    assert OPTIMIZERS["yogi"](0.5) == yogi(0.5)
