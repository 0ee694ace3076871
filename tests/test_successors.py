"""Methods that came after FedLC, against loops in numpy written from their equations."""

from typing import Any

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.simulation.simulation import Simulation, advance
from tests.core.test_round import DIGITS, SYNTHETIC, examples, final, matrix, rounds, softmax_gradient
from tests.helpers import assert_trees_close

LR = 0.05


def simulation_of(algorithm: str, **fields: Any) -> Simulation:
    """Ragged clients, three of five a round."""
    return Simulation(Run(**{**SYNTHETIC, "clients_per_round": 3, "seed": 1, **fields, "algorithm": algorithm}))


def batches(simulation: Simulation, client: int, round: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x.numpy(), y.numpy()) for x, y in examples(simulation, client, round)]


def close(simulation: Simulation, x: np.ndarray) -> None:
    np.testing.assert_allclose(matrix(simulation.server.params), x, rtol=1e-9, atol=1e-11)


def shares(simulation: Simulation, clients: np.ndarray) -> np.ndarray:
    sizes = simulation.federation.sizes(clients)
    return sizes / sizes.sum()


def trained(simulation: Simulation, start: np.ndarray, clients: np.ndarray, round: int) -> list[np.ndarray]:
    """Where plain local steps from `start` take each client."""
    ends = []
    for i in clients:
        y = start.copy()
        for batch in batches(simulation, i, round):
            y -= LR * softmax_gradient(y, *batch)
        ends.append(y)
    return ends


def test_fedavgm() -> None:
    """m = beta m + D, w += m."""
    simulation = simulation_of("fedavgm:beta=0.7")
    x, m = matrix(simulation.server.params), 0.0
    for round, clients in rounds(simulation):
        ends = trained(simulation, x, clients, round)
        m = 0.7 * m + np.average(ends, axis=0, weights=shares(simulation, clients)) - x
        x = x + m
    close(simulation, x)


def test_fedexp() -> None:
    """eta = max(1, sum p |delta_k|^2 / (2 (|delta|^2 + eps))), w += eta delta."""
    simulation = simulation_of("fedexp:eps=0.0001")
    x, paces = matrix(simulation.server.params), []
    for round, clients in rounds(simulation):
        deltas, p = np.array(trained(simulation, x, clients, round)) - x, shares(simulation, clients)
        delta = np.average(deltas, axis=0, weights=p)
        square = np.average((deltas**2).sum((1, 2)), weights=p)
        paces.append(max(1, square / (2 * ((delta**2).sum() + 0.0001))))
        x = x + paces[-1] * delta
    assert max(paces) > 1.05
    close(simulation, x)


@pytest.mark.parametrize("fields", [{"algorithm": "fedexp:eps=1e9"}, {"algorithm": "fedexp", "clients_per_round": 1}])
def test_clients_that_agree_do_not_lengthen_a_step(fields: dict[str, Any]) -> None:
    """Not even by rounding: the pace is then 1."""
    one, other = (simulation_of(**{**fields, "algorithm": name}) for name in (fields["algorithm"], "fedavg"))
    for simulation in (one, other):
        advance([simulation])
    torch.testing.assert_close(one.server.params, other.server.params, rtol=0, atol=0)


def test_lengths_do_not_bypass_a_median() -> None:
    with pytest.raises(ValueError, match="the server averages lengths, so one client could bypass the aggregate"):
        simulation_of("fedexp+median", weighting="uniform")


def test_fedacg() -> None:
    """Clients start at a = w + lam m and are pulled towards a."""
    simulation = simulation_of("fedacg:lam=0.7,mu=0.3")
    w, m = matrix(simulation.server.params), np.zeros((10, 61))
    for round, clients in rounds(simulation):
        a, ends = w + 0.7 * m, []
        for i in clients:
            y = a.copy()
            for batch in batches(simulation, i, round):
                y -= LR * (softmax_gradient(y, *batch) + 0.3 * (y - a))
            ends.append(y)
        m = 0.7 * m + np.average(ends, axis=0, weights=shares(simulation, clients)) - a
        w = w + m
    close(simulation, w)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_feddyn(weighting: str) -> None:
    """h_i += w_i - w, and the next model is the mean of the w_i plus the mean over all clients of h_i."""
    simulation = simulation_of("feddyn:alpha=0.2", weighting=weighting)
    x, own = matrix(simulation.server.params), np.zeros((5, 10, 61))
    everyone = shares(simulation, np.arange(5)) if weighting == "samples" else np.full(5, 1 / 5)
    for round, clients in rounds(simulation):
        ends = []
        for i in clients:
            y = x.copy()
            for batch in batches(simulation, i, round):
                y -= LR * (softmax_gradient(y, *batch) + 0.2 * (y - x + own[i]))
            own[i] += y - x
            ends.append(y)
        x = np.average(ends, axis=0, weights=everyone[clients]) + np.average(own, axis=0, weights=everyone)
    close(simulation, x)


@pytest.mark.parametrize("aggregate", ["", "+fednova"])
def test_feddyn_rests_where_its_aggregate_says(aggregate: str) -> None:
    """Each client repeats one example, so that batches differ only in their number: 1, 3 and 5 steps. The mean gradient
    vanishes, or, if the deltas are divided by tau, the mean by 1 / tau."""
    inputs, labels, numbers = np.array([[1, 0.5], [-0.3, 1], [0.7, -1]], np.float32), np.array([0, 1, 0]), (20, 60, 100)
    parts = [(np.tile(x, (n, 1)), np.full(n, y)) for x, y, n in zip(inputs, labels, numbers, strict=True)]
    data = Dataset.of_clients("repeated", parts, parts, 2)
    fields = {"dataset": data, "partition": "natural", "clients": 3, "model": "logistic", "weighting": "uniform"}
    fields |= {"batch_size": 20, "lr": 0.1, "weight_decay": 0.3, "precision": "fp64", "engine": "serial"}
    simulation = Simulation(Run(**fields, algorithm=f"feddyn:alpha=0.5{aggregate}", rounds=300, eval_every=300))
    for _ in rounds(simulation):
        pass
    w = matrix(simulation.server.params)
    gradients = np.stack([softmax_gradient(w, x.astype(float), y) + 0.3 * w for x, y in parts])
    inverse = 1 / simulation.recipe(1).optimizer.travel(torch.tensor([1, 3, 5]), 0.5).numpy()
    rests, moves = gradients.mean(0), np.average(gradients, axis=0, weights=inverse)
    rests, moves = (moves, rests) if aggregate else (rests, moves)
    assert np.linalg.norm(rests) < 1e-6
    assert np.linalg.norm(moves) > 1e-2


def test_feddyn_begins_as_fedprox_with_a_longer_server_step() -> None:
    """In round 1 all h_i are zero, and the model moves by 1 + the share of clients that answer."""
    fields = {"rounds": 1, "weighting": "uniform"}
    one, other = simulation_of("feddyn:alpha=0.2", **fields), simulation_of("fedprox:mu=0.2", **fields)
    before = one.server.params
    advance([one])
    advance([other])
    moved = tree.sub(other.server.params, before)
    assert_trees_close(tree.sub(one.server.params, before), tree.map(lambda leaf: (1 + 3 / 5) * leaf, moved), rtol=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedcm(momentum: float) -> None:
    """g <- alpha g + (1 - alpha) m with m = -D / travel, by the clients' mean travel."""
    simulation = simulation_of("fedcm:alpha=0.3", momentum=momentum)
    x, m = matrix(simulation.server.params), np.zeros((10, 61))
    for round, clients in rounds(simulation):
        ends, travels = [], []
        for i in clients:
            y, v, gone, speed = x.copy(), np.zeros_like(x), 0.0, 0.0
            for batch in batches(simulation, i, round):
                v = momentum * v + 0.3 * softmax_gradient(y, *batch) + 0.7 * m
                y = y - LR * v
                speed = momentum * speed + 1
                gone += LR * speed
            ends.append(y)
            travels.append(gone)
        p = shares(simulation, clients)
        delta = np.average(ends, axis=0, weights=p) - x
        x, m = x + delta, -delta / (p @ np.array(travels))
    close(simulation, x)


def test_fedsam_and_mofedsam() -> None:
    """The gradient at w + rho g / |g|; MoFedSAM mixes it with the last direction."""
    simulation = simulation_of("fedcm:alpha=0.5+fedsam:rho=0.1")
    x, m = matrix(simulation.server.params), np.zeros((10, 61))
    for round, clients in rounds(simulation):
        ends, travels = [], []
        for i in clients:
            y, steps = x.copy(), 0
            for batch in batches(simulation, i, round):
                g = softmax_gradient(y, *batch)
                g = softmax_gradient(y + 0.1 * g / np.linalg.norm(g), *batch)
                y, steps = y - LR * (0.5 * g + 0.5 * m), steps + 1
            ends.append(y)
            travels.append(LR * steps)
        p = shares(simulation, clients)
        delta = np.average(ends, axis=0, weights=p) - x
        x, m = x + delta, -delta / (p @ np.array(travels))
    close(simulation, x)


def test_fedsam_leaves_batch_norm_to_the_first_pass() -> None:
    """The second gradient is taken elsewhere; running statistics and the loss are those of the model itself."""
    one, other = (final(a, rounds=1, local_epochs=1, batch_size=500) for a in ("fedsam:rho=0.5", "fedavg"))
    assert_trees_close(one.buffers, other.buffers)
    assert tree.norm(tree.sub(one.params, other.params), 0) > 1e-3


def test_fedgc() -> None:
    """Rows of every delta have mean zero, and vectors are left alone."""
    fields = {**DIGITS, "model": "cnn:padding=1,width=4", "algorithm": "fedgc", "momentum": 0.9}
    simulation = Simulation(Run(**fields))
    (update,) = simulation.engine.train(simulation.recipe(1), [simulation.server], [simulation.cohort(1)], 1)
    matrices = [name for name, leaf in simulation.server.params.items() if leaf.ndim > 1]
    assert len(matrices) == 4
    for name, leaf in update.delta.items():
        rows = leaf.flatten(2).mean(-1) if name in matrices else leaf
        assert (rows.abs().max() < 1e-12) == (name in matrices)


def test_fedgc_on_logistic_regression() -> None:
    """The classifier trains freely and its delta is centred at the end."""
    simulation = simulation_of("fedgc")
    x = matrix(simulation.server.params)
    for round, clients in rounds(simulation):
        delta = np.average(trained(simulation, x, clients, round), axis=0, weights=shares(simulation, clients)) - x
        delta[:, :-1] -= delta[:, :-1].mean(1, keepdims=True)  # centring is linear: of the mean as of each
        x = x + delta
    close(simulation, x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feddyn:alpha=0", "alpha is 0.0; allowed: above 0"),
        ("fedcm:alpha=0", "alpha is 0.0; allowed: above 0, at most 1"),
        ("fedsam:rho=-1", "rho is -1.0; allowed: 0 or more"),
        ("fedavgm:beta=1", "momentum is 1.0; allowed: 0 or more, below 1"),
        ("fedexp:eps=0", "eps is 0.0; allowed: above 0"),
        ("feddyn+scaffold", "feddyn and scaffold both set the correction"),
        ("fedavgm+fedopt", "fedavgm and fedopt both set the server"),
        ("scaffold:mean=plain", "mean is 'plain'; allowed: weighted, uniform"),
    ],
)
def test_wrong_arguments(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run(algorithm=text)


def test_fedcm_with_an_adaptive_client_optimiser_is_refused() -> None:
    with pytest.raises(ValueError, match="fedcm needs optimizer=sgd on the client, not adam"):
        Run(algorithm="fedcm", optimizer="adam")
    simulation = simulation_of("feddyn", optimizer="adam", rounds=1)  # needs no travel: bends what adam sees
    advance([simulation])
    assert torch.isfinite(simulation.server.params["linear.bias"]).all()
