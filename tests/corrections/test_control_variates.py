"""Control variates: what option II means, and how the server learns of it."""

import pytest
import torch

from fedskew.core.round import Context, Sums
from fedskew.core.tree import Params
from fedskew.corrections import control_variates
from fedskew.optimizers import sgd
from tests.helpers import assert_close, assert_trees_equal, normal

PART = control_variates()


def context(client: Params, server: Params, travel: torch.Tensor = torch.tensor(1.0)) -> Context:  # noqa: B008
    return Context({}, {}, client, server, torch.ones(3), travel)


def walk(steps: list[torch.Tensor], client: Params, server: Params, optimizer: sgd) -> tuple[Params, Params, Params]:
    """A client that meets these gradients: its delta, new state and message."""
    start = {"w": torch.zeros_like(steps[0])}
    params, state = start, optimizer.init(start)
    for gradient in steps:
        grads = PART.bend({"w": gradient}, params, context(client, server))
        updates, state = optimizer.update(grads, state, params, optimizer.lr)
        params = {"w": params["w"] + updates["w"]}
    travel = optimizer.travel(torch.tensor(len(steps)))
    return PART.finish(context(client, server, travel), params)


def test_starts_at_zero() -> None:
    params = {"w": torch.ones(2, 3), "b": torch.full((4,), 5.0)}
    for state in (PART.client_state(params), PART.server_state(params)):
        assert_trees_equal(state, {"w": torch.zeros(2, 3), "b": torch.zeros(4)})
    assert PART.needs_travel


def test_step_with_g_minus_own_plus_server(generator: torch.Generator) -> None:
    g, own, server = ({"w": normal(generator, 3)} for _ in range(3))
    assert_close(PART.bend(g, {}, context(own, server))["w"], g["w"] - own["w"] + server["w"])


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
    _, new, message = PART.finish(context(own, server, torch.tensor(2.0)), delta)
    assert new["w"].tolist() == [3.0 - 5.0 - 8.0 / 2.0]
    assert message["w"].tolist() == [-5.0 - 8.0 / 2.0]


def test_absorb_counts_all_clients_not_the_sampled_ones() -> None:
    """c += the share of all clients that answered, times their mean change."""
    server, mean = {"w": torch.tensor([1.0])}, {"w": torch.tensor([6.0])}
    sums = Sums({}, {}, mean, torch.tensor(1.0), *torch.zeros(2))
    assert PART.absorb(server, sums, 2 / 10)["w"].item() == pytest.approx(1.0 + (4.0 + 8.0) / 10)
    assert PART.absorb(server, sums, 1.0)["w"].item() == pytest.approx(7.0)


def test_messages_count_like_deltas_or_all_the_same() -> None:
    weights = torch.tensor([1.0, 4.0])
    assert PART.weigh(weights).tolist() == [1.0, 4.0]
    assert control_variates("uniform").weigh(weights).tolist() == [1.0, 1.0]


def test_each_client_divides_by_its_own_travel() -> None:
    own = {"w": torch.zeros(2, 1)}
    delta, travel = {"w": torch.tensor([[6.0], [6.0]])}, torch.tensor([2.0, 3.0], dtype=torch.float64)
    _, new, _ = PART.finish(context(own, {"w": torch.zeros(1)}, travel), delta)
    assert new["w"].flatten().tolist() == [-3.0, -2.0]
