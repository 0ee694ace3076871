"""SGD against torch.optim.SGD, and travel against a measured distance."""

import math
import re

import pytest
import torch

from fedskew.optimizers import sgd
from tests.helpers import assert_close, clones, normal


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("lr", [0.05, 1.0])
def test_equals_pytorchs(lr: float, momentum: float, weight_decay: float, generator: torch.Generator) -> None:
    params = {"w": normal(generator, 3, 2), "b": normal(generator, 4)}
    theirs = [leaf.clone().requires_grad_() for leaf in params.values()]
    torchs = torch.optim.SGD(theirs, lr=lr, momentum=momentum, weight_decay=weight_decay)
    ours = sgd(lr, momentum, weight_decay)
    state = ours.init(params)
    for _ in range(6):
        grads = {name: normal(generator, *leaf.shape) for name, leaf in params.items()}
        for leaf, grad in zip(theirs, grads.values(), strict=True):
            leaf.grad = grad.clone()
        torchs.step()
        updates, state = ours.update(grads, state, params, ours.lr)
        params = {name: leaf + updates[name] for name, leaf in params.items()}
        for leaf, other in zip(params.values(), theirs, strict=True):
            assert_close(leaf, other.detach())


def test_defaults_move_by_minus_the_gradient() -> None:
    """The server's optimiser of FedAvg: its gradient is -delta, so it adds delta."""
    grads = {"w": torch.tensor([1.0, -2.0])}
    updates, state = sgd().update(grads, sgd().init(grads), grads, 1.0)
    assert updates["w"].tolist() == [-1.0, 2.0]
    assert state == {}


def test_state_only_with_momentum(generator: torch.Generator) -> None:
    params = {"w": normal(generator, 2)}
    assert sgd(0.1).init(params) == {}
    assert sgd(0.1, 0.9).init(params)["w"].tolist() == [0.0, 0.0]


def test_the_state_is_not_changed_in_place(generator: torch.Generator) -> None:
    params, part = {"w": normal(generator, 2)}, sgd(0.1, 0.9)
    _, state = part.update(params, part.init(params), params, part.lr)
    kept = clones(state)
    part.update(params, state, params, part.lr)
    assert torch.equal(state["w"], kept["w"])


@pytest.mark.parametrize("pull", [0.0, 0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("lr", [0.01, 0.5])
def test_identity_10_travel_is_the_distance_under_a_unit_gradient(lr: float, momentum: float, pull: float) -> None:
    """Also where a proximal term pulls back; with complex roots, and with a root of zero."""
    part, unit = sgd(lr, momentum), {"w": torch.ones(1, dtype=torch.float64)}
    position, state, measured = torch.zeros(1, dtype=torch.float64), part.init(unit), [0.0]
    for _ in range(40):
        bent = {"w": unit["w"] + pull * position}
        updates, state = part.update(bent, state, {"w": position}, part.lr)
        position = position + updates["w"]
        measured.append(-position.item())
    travel = part.travel(torch.arange(41), pull)
    assert travel.dtype == torch.float64
    assert travel.tolist() == pytest.approx(measured, rel=1e-9, abs=1e-11)


def test_travel_keeps_the_shape_of_steps() -> None:
    part = sgd(0.5, 0.9)
    assert part.travel(torch.tensor(3)).shape == ()
    assert part.travel(torch.tensor([[1, 2, 3], [4, 5, 6]])).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "lr is 0.0; allowed: above 0"),
        ((-1.0,), "lr is -1.0; allowed: above 0"),
        ((math.nan,), "lr is nan; allowed: above 0"),
        ((math.inf,), "lr is inf; allowed: above 0"),
        ((0.1, 1.0), "momentum is 1.0; allowed: 0 or more, below 1"),
        ((0.1, -0.1), "momentum is -0.1; allowed: 0 or more, below 1"),
        ((0.1, math.nan), "momentum is nan; allowed: 0 or more, below 1"),
        ((0.1, 0.9, -1e-4), "weight_decay is -0.0001; allowed: 0 or more"),
        ((0.1, 0.9, math.inf), "weight_decay is inf; allowed: 0 or more"),
        ((0.1, 0.9, math.nan), "weight_decay is nan; allowed: 0 or more"),
    ],
)
def test_bad_numbers(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sgd(*arguments)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("pull", [1e-17, 1e-12, 1e-9])
def test_a_hardly_noticeable_pull_hardly_changes_the_travel(momentum: float, pull: float) -> None:
    part, steps = sgd(0.01, momentum), torch.arange(1, 30)
    assert part.travel(steps, pull).tolist() == pytest.approx(part.travel(steps).tolist(), rel=1e-8)
