"""Control variates: what option II means, and how the server learns of it."""

import pytest
import torch

from fedskew.corrections import control_variates
from fedskew.optimizers import sgd
from fedskew.tree import Params
from tests.helpers import assert_close, assert_trees_equal, normal

PART = control_variates()


def walk(steps: list[torch.Tensor], client: Params, server: Params, optimizer: sgd) -> tuple[Params, Params, Params]:
    """A client that meets these gradients: its delta, new state and message."""
    start = {"w": torch.zeros_like(steps[0])}
    params, state = start, optimizer.init(start)
    for gradient in steps:
        grads = PART.grad({"w": gradient}, params, start, client, server)
        updates, state = optimizer.update(grads, state, params)
        params = {"w": params["w"] + updates["w"]}
    travel = optimizer.travel(torch.tensor(len(steps)))
    return params, *PART.finish(client, server, params, travel)


def test_starts_at_zero() -> None:
    params = {"w": torch.ones(2, 3), "b": torch.full((4,), 5.0)}
    assert_trees_equal(PART.init(params), {"w": torch.zeros(2, 3), "b": torch.zeros(4)})
    assert PART.needs_travel


def test_step_with_g_minus_own_plus_server(generator: torch.Generator) -> None:
    g, own, server = ({"w": normal(generator, 3)} for _ in range(3))
    assert_close(PART.grad(g, {}, {}, own, server)["w"], g["w"] - own["w"] + server["w"])


@pytest.mark.parametrize("lr", [0.1, 3.0])
def test_option_two_is_the_mean_gradient_along_the_path(lr: float, generator: torch.Generator) -> None:
    """Without momentum c_i+ is exactly the mean of the client's own gradients, whatever c_i and c were."""
    gradients = [normal(generator, 4) for _ in range(5)]
    own, server = {"w": normal(generator, 4)}, {"w": normal(generator, 4)}
    _, new, message = walk(gradients, own, server, sgd(lr))
    assert_close(new["w"], torch.stack(gradients).mean(0), rtol=1e-11)
    assert_close(message["w"], new["w"] - own["w"], rtol=1e-11)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_with_momentum_a_constant_gradient_is_found_again(momentum: float, generator: torch.Generator) -> None:
    gradient, own, server = normal(generator, 4), {"w": normal(generator, 4)}, {"w": normal(generator, 4)}
    _, new, _ = walk([gradient] * 7, own, server, sgd(0.2, momentum))
    assert_close(new["w"], gradient, rtol=1e-11)


def test_finish_by_hand() -> None:
    own, server, delta = ({"w": torch.tensor([x])} for x in (3.0, 5.0, 8.0))
    new, message = PART.finish(own, server, delta, torch.tensor(2.0))
    assert new["w"].tolist() == [3.0 - 5.0 - 8.0 / 2.0]
    assert message["w"].tolist() == [-5.0 - 8.0 / 2.0]


def test_absorb_counts_all_clients_not_the_sampled_ones() -> None:
    """c += |S|/N * mean over S, which is the sum over S divided by N; weights take no part."""
    server, messages = {"w": torch.tensor([1.0])}, {"w": torch.tensor([[4.0], [8.0]])}
    assert PART.absorb(server, messages, 2 / 10)["w"].item() == pytest.approx(1.0 + (4.0 + 8.0) / 10)
    assert PART.absorb(server, messages, 1.0)["w"].item() == pytest.approx(7.0)


def test_each_client_divides_by_its_own_travel() -> None:
    own = {"w": torch.zeros(2, 1)}
    delta, travel = {"w": torch.tensor([[6.0], [6.0]])}, torch.tensor([2.0, 3.0], dtype=torch.float64)
    new, _ = PART.finish(own, {"w": torch.zeros(1)}, delta, travel)
    assert new["w"].flatten().tolist() == [-3.0, -2.0]
