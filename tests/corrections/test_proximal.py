"""The proximal term is the gradient of half the squared distance."""

import math
import re

import pytest
import torch

from fedskew.core.round import Context
from fedskew.core.tree import Params
from fedskew.corrections import proximal
from tests.helpers import assert_trees_close, assert_trees_equal, normal


def at(anchor: Params) -> Context:
    return Context(anchor, {}, {}, {}, torch.ones(3), torch.tensor(1.0))


def test_is_the_gradient_of_the_squared_distance(generator: torch.Generator) -> None:
    """grad of <g, w> + mu/2 ||w - anchor||^2 by autograd."""
    mu = 0.7
    w = {"a": normal(generator, 3, 2).requires_grad_(), "b": normal(generator, 4).requires_grad_()}
    anchor, grads = ({name: normal(generator, *leaf.shape) for name, leaf in w.items()} for _ in range(2))
    objective = sum((grads[n] * w[n]).sum() + mu / 2 * (w[n] - anchor[n]).square().sum() for n in w)
    expected = dict(zip(w, torch.autograd.grad(objective, list(w.values())), strict=True))
    params = {name: leaf.detach() for name, leaf in w.items()}
    assert_trees_close(proximal(mu).bend(grads, params, at(anchor)), expected)


def test_identity_5_mu_zero_is_no_correction(generator: torch.Generator) -> None:
    grads, params, anchor = ({"w": normal(generator, 5)} for _ in range(3))
    assert_trees_equal(proximal(0.0).bend(grads, params, at(anchor)), grads)


def test_remembers_nothing() -> None:
    part, delta = proximal(), {"w": torch.ones(2)}
    assert part.mu == part.pull == 0.01
    assert part.client_state(delta) == part.server_state(delta) == {}
    assert part.finish(at(delta), delta) == (delta, {}, {})
    assert not part.needs_travel


@pytest.mark.parametrize("mu", [-0.1, math.nan, math.inf])
def test_bad_mu(mu: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"mu is {mu}; allowed: 0 or more")):
        proximal(mu)
