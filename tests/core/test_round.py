"""A round against loops written independently of it, with PyTorch's or numpy's own arithmetic."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedskew import Run
from fedskew.algorithms import ALGORITHMS, Algorithm, build_algorithm, fedavg
from fedskew.core import tree
from fedskew.core.round import (
    Batch,
    Context,
    Recipe,
    Server,
    Update,
    join,
    local_update,
    server_update,
    start_server,
    take,
)
from fedskew.core.tree import Params
from fedskew.models import Model, logistic
from fedskew.optimizers import sgd
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN, assert_trees_close, integers, normal
from tests.helpers.parts import METHODS, fields_for

FIELDS: dict[str, Any] = {"precision": "fp64", "engine": "serial", "local_epochs": 3, "batch_size": 16, "lr": 0.05}
SYNTHETIC: dict[str, Any] = {**FIELDS, "dataset": "synthetic:1,1,max_size=75", "clients": 5, "rounds": 4}
DIGITS: dict[str, Any] = {
    **FIELDS,
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "rounds": 3,
}


def rounds(simulation: Simulation) -> Iterator[tuple[int, np.ndarray]]:
    """Play a simulation to its end: each round's number and clients, before it is played."""
    while not simulation.ended:
        yield simulation.round + 1, simulation.cohort(simulation.round + 1).clients
        advance([simulation])


def examples(simulation: Simulation, client: int, round: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A client's batches: its examples in the order of its own stream, cut every batch_size, epoch by epoch."""
    run, federation = simulation.run, simulation.federation
    data = federation.dataset
    order = federation.shuffled(np.array([client]), run.seed, round, run.local_epochs)
    for epoch in order.reshape(run.local_epochs, -1):
        for start in range(0, len(epoch), run.batch_size):
            index = torch.from_numpy(epoch[start : start + run.batch_size])
            yield data.prepare(data.x_train[index], torch.float64), data.y_train[index]


def counts_of(simulation: Simulation, client: int) -> Tensor:
    data = simulation.federation.dataset
    return torch.bincount(data.y_train[simulation.federation.indices[client]], minlength=data.num_classes)


class TestOneClient:
    """Identity 9: one client and no server state is local training, with the optimiser reset each round."""

    LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {  # noqa: RUF012
        "fedavg": lambda f, y, n: functional.cross_entropy(f, y),
        "fedlc:tau=2": lambda f, y, n: functional.cross_entropy(f - 2 * n.clamp(min=1).double() ** -0.25, y),
        "fedlc:tau=2,missing=mask": lambda f, y, n: functional.cross_entropy(
            (f - 2 * n.double() ** -0.25)[:, n > 0], (n > 0).cumsum(0)[y] - 1
        ),
        "fedrs:alpha=0.5": lambda f, y, n: functional.cross_entropy(torch.where(n > 0, f, f / 2), y),
        "fedla:tau=0.5": lambda f, y, n: functional.cross_entropy(f + 0.5 * n.clamp(min=1).double().log(), y),
        "fedprox:mu=0.2": lambda f, y, n: functional.cross_entropy(f, y),
        "fednova": lambda f, y, n: functional.cross_entropy(f, y),
        "scaffold": lambda f, y, n: functional.cross_entropy(f, y),
        "fedopt:server=sgd": lambda f, y, n: functional.cross_entropy(f, y),
    }

    @pytest.mark.parametrize("algorithm", LOSSES)
    @pytest.mark.parametrize(
        "extra",
        [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"momentum": 0.9, "grad_clip": 0.5}],
        ids=["plain", "momentum and decay", "clipped"],
    )
    def test_is_a_plain_training_loop(self, algorithm: str, extra: dict[str, float]) -> None:
        """SCAFFOLD is SGD here (identity 7): with one client c_i = c after every round."""
        run = Run(**{**SYNTHETIC, **extra, "clients": 1, "rounds": 3, "algorithm": algorithm, "seed": 3})
        simulation = Simulation(run)
        model = nn.Linear(60, 10, dtype=torch.float64)
        model.load_state_dict({n.removeprefix("linear."): p for n, p in simulation.server.params.items()})
        counts, objective = counts_of(simulation, 0), self.LOSSES[algorithm]
        assert (counts == 0).any()
        sizes = set()
        for round, _ in rounds(simulation):
            anchor = [p.detach().clone() for p in model.parameters()]
            optimizer = torch.optim.SGD(
                model.parameters(), run.lr, momentum=run.momentum, weight_decay=run.weight_decay
            )
            for x, y in examples(simulation, 0, round):
                sizes.add(len(y))
                loss = objective(model(x), y, counts)
                if algorithm.startswith("fedprox"):
                    pull = sum((p - a).square().sum() for p, a in zip(model.parameters(), anchor, strict=True))
                    loss = loss + 0.2 / 2 * pull
                optimizer.zero_grad()
                loss.backward()
                if run.grad_clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), run.grad_clip)
                optimizer.step()
        assert len(sizes) == 2  # full batches and a partial last one
        # PyTorch's clipping divides by norm + 1e-6, ours by norm + 1e-12.
        close = 1e-10 if run.grad_clip is None else 1e-5
        expected = {f"linear.{name}": p.detach() for name, p in model.named_parameters()}
        assert_trees_close(simulation.server.params, expected, rtol=close, atol=close)

    def test_with_batch_norm(self) -> None:
        """The network in PyTorch's own layers, running statistics included."""
        run = Run(
            **{**DIGITS, "clients": 1, "partition": "iid", "model": "cnn:padding=1,width=4", "momentum": 0.9},
            weight_decay=1e-3,
        )
        simulation = Simulation(run)
        params = {**simulation.server.params, **simulation.server.buffers}
        blocks = [nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)]
        norms = [nn.BatchNorm2d(4) for _ in range(3)]
        layers = [part for c, n in zip(blocks, norms, strict=True) for part in (c, n, nn.ReLU(), nn.MaxPool2d(2))]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 10)).double()
        named = {f"{4 * i}.": f"convs.{i}." for i in range(3)} | {f"{4 * i + 1}.": f"norms.{i}." for i in range(3)}
        named["13."] = "linear."

        def ours(name: str) -> str:
            start = name[: name.index(".") + 1]
            return named[start] + name.removeprefix(start)

        mine = {name: params[ours(name)] for name in model.state_dict() if not name.endswith("tracked")}
        model.load_state_dict(mine, strict=False)
        for round, _ in rounds(simulation):
            optimizer = torch.optim.SGD(model.parameters(), run.lr, momentum=0.9, weight_decay=1e-3)
            for x, y in examples(simulation, 0, round):
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        after = {**simulation.server.params, **simulation.server.buffers}
        for name, leaf in model.state_dict().items():
            if not name.endswith("tracked"):
                torch.testing.assert_close(after[ours(name)], leaf, rtol=1e-8, atol=1e-9)


def softmax_gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross entropy of logistic regression; the bias is the last column of w."""
    x = np.hstack([x, np.ones((len(x), 1))])
    f = x @ w.T
    p = np.exp(f - f.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return p.T @ x / len(y)


def matrix(params: Params) -> np.ndarray:
    return np.hstack([params["linear.weight"].numpy(), params["linear.bias"].numpy()[:, None]])


@pytest.mark.parametrize("mean", ["weighted", "uniform"])
def test_scaffold_against_its_pseudo_code(mean: str) -> None:
    """Algorithm 1 of Karimireddy et al., option II, with partial participation and sample weights; their c is the plain
    mean of the c_i."""
    simulation = Simulation(Run(**SYNTHETIC, clients_per_round=3, algorithm=f"scaffold:mean={mean}", seed=1))
    sizes = simulation.federation.sizes(np.arange(5))
    x, c, own = matrix(simulation.server.params), np.zeros((10, 61)), np.zeros((5, 10, 61))
    seen = set()
    for round, clients in rounds(simulation):
        seen.add(tuple(clients))
        deltas, changes = [], []
        for i in clients:
            y, steps = x.copy(), 0
            for inputs, labels in examples(simulation, i, round):
                y -= 0.05 * (softmax_gradient(y, inputs.numpy(), labels.numpy()) - own[i] + c)
                steps += 1
            new = own[i] - c + (x - y) / (steps * 0.05)
            changes.append(new - own[i])
            deltas.append(y - x)
            own[i] = new
        x = x + np.average(deltas, axis=0, weights=sizes[clients])
        shares = sizes / sizes.sum() if mean == "weighted" else np.full(5, 1 / 5)
        c = c + sum(shares[i] * change for i, change in zip(clients, changes, strict=True))
        np.testing.assert_allclose(c, np.average(own, axis=0, weights=shares), rtol=1e-9, atol=1e-11)
    assert len(seen) > 1
    np.testing.assert_allclose(matrix(simulation.server.params), x, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(matrix(simulation.server.correction), c, rtol=1e-9, atol=1e-11)
    kept = simulation.states.gather(np.arange(5))
    for i in range(5):
        np.testing.assert_allclose(matrix(tree.rows(kept, i)), own[i], rtol=1e-9, atol=1e-11)


def weights_of_gradients(steps: int, momentum: float, mu: float, lr: float = 0.05) -> list[float]:
    """How much of each step's gradient is in -delta / lr, by letting one gradient after the other be 1."""
    found = []
    for k in range(steps):
        y = v = 0.0
        for step in range(steps):
            v = momentum * v + float(step == k) + mu * y
            y -= lr * v
        found.append(-y / lr)
    return found


@pytest.mark.parametrize(
    ("weighting", "mean"), [("samples", "weighted"), ("uniform", "weighted"), ("samples", "uniform")]
)
def test_scaffold_rests_where_its_weights_say(weighting: str, mean: str) -> None:
    """Full batches of a strongly convex problem with ragged clients: the gradient of the mean objective vanishes that
    the control variates are weighted for."""
    fields = {**SYNTHETIC, "local_epochs": 4, "batch_size": 200, "lr": 0.02, "weight_decay": 1.0, "rounds": 250}
    fields |= {"engine": "stacked", "eval_every": 250}
    run = Run(**fields, algorithm=f"scaffold:mean={mean}", weighting=weighting)
    simulation = Simulation(run)
    for _ in rounds(simulation):
        pass
    w, data = matrix(simulation.server.params), simulation.federation.dataset
    parts = [(data.x_train[i].double().numpy(), data.y_train[i].numpy()) for i in simulation.federation.indices]
    gradients = np.stack([softmax_gradient(w, *part) + w for part in parts])
    sizes = simulation.federation.sizes(np.arange(5))
    by_samples, plain = np.average(gradients, axis=0, weights=sizes), gradients.mean(0)
    rests, moves = (by_samples, plain) if (weighting, mean) == ("samples", "weighted") else (plain, by_samples)
    assert np.linalg.norm(rests) < 1e-6
    assert np.linalg.norm(moves) > 1e-3


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_against_its_equation(momentum: float, mu: float) -> None:
    """tau_i is the sum of the weights that the steps' gradients have in delta_i (Wang et al., section 4); with a
    proximal term, (1 - (1 - lr mu)^steps) / (lr mu) without momentum."""
    algorithm = f"fednova+fedprox:mu={mu}"
    simulation = Simulation(Run(**SYNTHETIC, clients_per_round=3, algorithm=algorithm, momentum=momentum, seed=1))
    sizes = simulation.federation.sizes(np.arange(5))
    x, different = matrix(simulation.server.params), False
    for round, clients in rounds(simulation):
        p = sizes[clients] / sizes[clients].sum()
        deltas, taus = [], []
        for i in clients:
            y, v, steps = x.copy(), np.zeros_like(x), 0
            for inputs, labels in examples(simulation, i, round):
                v = momentum * v + softmax_gradient(y, inputs.numpy(), labels.numpy()) + mu * (y - x)
                y = y - 0.05 * v
                steps += 1
            taus.append(sum(weights_of_gradients(steps, momentum, mu)))
            deltas.append(y - x)
        different |= len(set(taus)) > 1
        tau_eff = sum(share * tau for share, tau in zip(p, taus, strict=True))
        x = x + tau_eff * sum(share * d / tau for share, d, tau in zip(p, deltas, taus, strict=True))
    assert different
    np.testing.assert_allclose(matrix(simulation.server.params), x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("server", ["adagrad", "adam", "yogi"])
def test_fedopt_against_its_pseudo_code(server: str) -> None:
    """Algorithm 2 of Reddi et al."""
    algorithm = f"fedopt:server={server},eta=0.05"
    simulation = Simulation(Run(**SYNTHETIC, clients_per_round=3, algorithm=algorithm, weighting="uniform", seed=1))
    x = matrix(simulation.server.params)
    m, v, b1, b2 = np.zeros_like(x), np.full_like(x, 1e-6), 0.0 if server == "adagrad" else 0.9, 0.99
    for round, clients in rounds(simulation):
        deltas = []
        for i in clients:
            y = x.copy()
            for inputs, labels in examples(simulation, i, round):
                y -= 0.05 * softmax_gradient(y, inputs.numpy(), labels.numpy())
            deltas.append(y - x)
        delta = np.mean(deltas, axis=0)
        m = b1 * m + (1 - b1) * delta
        if server == "adagrad":
            v = v + delta**2
        elif server == "adam":
            v = b2 * v + (1 - b2) * delta**2
        else:
            v = v - (1 - b2) * delta**2 * np.sign(v - delta**2)
        x = x + 0.05 * m / (np.sqrt(v) + 1e-3)
    np.testing.assert_allclose(matrix(simulation.server.params), x, rtol=1e-9, atol=1e-11)


def final(algorithm: str, **fields: Any) -> Server:
    simulation = Simulation(Run(**{**DIGITS, "model": "cnn:padding=1,width=4", **fields, "algorithm": algorithm}))
    for _ in rounds(simulation):
        pass
    return simulation.server


@pytest.mark.parametrize(
    ("same", "fields"),
    [
        ("fedprox:mu=0", {"momentum": 0.9}),  # identity 5
        ("fedopt:server=sgd", {"momentum": 0.9}),  # identity 8
        ("fedrs:alpha=1", {"momentum": 0.9}),  # identity 4
        ("fedrs:alpha=1,mode=proportional", {}),
        ("fedlc:tau=0", {"momentum": 0.9}),  # identity 2
        ("fedavgm:beta=0", {}),
        ("fedacg:lam=0,mu=0", {"momentum": 0.9}),
        ("fedcm:alpha=1", {"momentum": 0.9}),
        ("fedsam:rho=0", {"momentum": 0.9}),
        ("fedla:tau=0", {}),
        ("fednova", {"partition": "iid", "momentum": 0.9}),  # identity 6: all take the same number of steps
    ],
)
def test_methods_that_come_to_fedavg(same: str, fields: dict[str, Any]) -> None:
    one, other = final(same, **fields), final("fedavg", **fields)
    assert_trees_close(one.params, other.params, rtol=1e-9, atol=1e-11)
    assert_trees_close(one.buffers, other.buffers, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("other", [*(name for name in ALGORITHMS if name != "fedavg"), "fedopt:server=sgd,eta=0.5"])
def test_methods_that_do_not(other: str) -> None:
    fields = fields_for(other) if other in METHODS else {}
    gap = tree.norm(tree.sub(final(other, **fields).used, final("fedavg", **fields).used), 0)
    assert gap > 1e-4


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mean", ["weighted", "uniform"])
def test_identity_7_full_participation_keeps_c_the_mean_of_c_i(weighting: str, momentum: float, mean: str) -> None:
    """Also with momentum and with ragged clients: by the weights of the deltas, or the plain mean."""
    fields = {**DIGITS, "model": "mlp:hidden=6", "algorithm": f"scaffold:mean={mean}"}
    simulation = Simulation(Run(**fields, weighting=weighting, momentum=momentum))
    for _ in range(3):
        advance([simulation])
        own = simulation.states.gather(np.arange(4))
        weights = simulation.cohort(1).weights(weighting if mean == "weighted" else "uniform")
        expected = tree.weighted_sum(own, weights / weights.sum())
        assert_trees_close(simulation.server.correction, expected, rtol=1e-10, atol=1e-12)
    assert tree.norm(simulation.server.correction, 0) > 0.01


def test_scaffold_keeps_the_state_of_clients_that_are_not_sampled() -> None:
    fields = {**DIGITS, "rounds": 8, "clients_per_round": 1, "local_epochs": 1, "model": "logistic"}
    simulation = Simulation(Run(**fields, algorithm="scaffold"))
    sampled: list[int] = []
    for round in range(1, 9):
        (client,) = simulation.cohort(round).clients.tolist()
        sampled.append(client)
        before = simulation.states.gather(np.arange(4))["linear.weight"]
        advance([simulation])
        after = simulation.states.gather(np.arange(4))["linear.weight"]
        for k in range(4):
            assert torch.equal(after[k], before[k]) == (k != client)
    assert len(set(sampled)) < len(sampled)  # somebody came back


def test_server_optimisers_and_corrections_leave_buffers_to_the_mean() -> None:
    """Running statistics are averaged with the sample weights, whatever the method."""
    algorithms = ("fedavg", "fednova", "fedopt", "fedopt:server=yogi", "scaffold")
    fields = {"rounds": 1, "local_epochs": 2}
    first = final("fedavg", **fields).buffers
    for algorithm in algorithms[1:]:
        server = final(algorithm, **fields)
        assert_trees_close(server.buffers, first)
        assert not any("running" in name for name in [*server.correction, *server.optimizer])


def at(params: Params, counts: Tensor) -> Context:
    """A client without states at a model without buffers."""
    return Context(params, {}, {}, {}, counts, torch.tensor(1.0, dtype=torch.float64))


def problem(
    generator: torch.Generator, algorithm: Algorithm, clip: float | None = None
) -> tuple[Recipe, Server, list[Update]]:
    """Three clients of logistic regression in memory."""
    model = Model(logistic((4,), 3).double())
    recipe = Recipe(model, algorithm, sgd(0.1, 0.9), clip)
    server = start_server(recipe, *model.init(torch.float64, "cpu"))
    client = algorithm.correction.client_state(server.params)
    updates = []
    for steps in (1, 4, 2):
        batches = [Batch(normal(generator, 5, 4), integers(generator, 0, 3, 5)) for _ in range(steps)]
        context = Context(
            server.params, {}, client, server.correction, torch.tensor([5, 3, 2]), recipe.travel(torch.tensor(steps))
        )
        updates.append(local_update(recipe, context, iter(batches), torch.tensor(steps)))
    return recipe, server, updates


def test_a_padded_batch_is_the_batch_without_padding(generator: torch.Generator) -> None:
    model = Model(logistic((4,), 3).double())
    recipe = Recipe(model, build_algorithm("fedlc"), sgd(0.1))
    server = start_server(recipe, *model.init(torch.float64, "cpu"))
    context = at(server.params, torch.tensor([5, 3, 0]))
    x, y = normal(generator, 5, 4), torch.tensor([0, 1, 0, 1, 1])
    short = [Batch(x[:3], y[:3])]
    padded = [Batch(x, y, torch.tensor([True, True, True, False, False]))]
    one, other = (local_update(recipe, context, batches, torch.tensor(1)) for batches in (short, padded))
    assert_trees_close(one.delta, other.delta)
    assert one.loss.item() == pytest.approx(other.loss.item(), rel=1e-12)


def test_the_loss_is_the_mean_over_steps(generator: torch.Generator) -> None:
    """With lr so small that nothing moves, the reported loss is that of the first model."""
    model = Model(logistic((4,), 3).double())
    recipe = Recipe(model, fedavg(), sgd(1e-300))
    params, _ = model.init(torch.float64, "cpu")
    batches = [Batch(normal(generator, n, 4), integers(generator, 0, 3, n)) for n in (5, 5, 2)]
    update = local_update(recipe, at(params, torch.ones(3)), batches, torch.tensor(3))
    means = [functional.cross_entropy(model.module(b.x), b.y).item() for b in batches]
    assert update.loss.item() == pytest.approx(sum(means) / 3, rel=1e-12)


def test_one_client_alone_or_a_cohort(generator: torch.Generator) -> None:
    """The same code with and without a leading axis."""
    model = Model(logistic((4,), 3).double())
    recipe = Recipe(model, build_algorithm("fedlc+scaffold"), sgd(0.1, 0.9), 0.3)
    server = start_server(recipe, *model.init(torch.float64, "cpu"))
    counts = torch.tensor([[5, 3, 2], [1, 0, 9]])
    states = tree.map(lambda leaf: normal(generator, 2, *leaf.shape), server.correction)
    batches = [Batch(normal(generator, 2, 6, 4), 2 * integers(generator, 0, 2, 2, 6)) for _ in range(3)]
    wide = tree.map(lambda leaf: leaf.expand(2, *leaf.shape), server.params)
    steps = torch.tensor([3, 3])
    whole = Context(wide, {}, states, server.correction, counts, recipe.travel(steps))
    both = local_update(recipe, whole, batches, steps)
    for k in range(2):
        context = dataclasses.replace(take(whole, k), anchor=server.params, server=server.correction)
        alone = local_update(recipe, context, [Batch(b.x[k], b.y[k]) for b in batches], steps[k])
        for name in ("delta", "client", "message"):
            assert_trees_close(getattr(alone, name), tree.rows(getattr(both, name), k))
        assert alone.loss.item() == pytest.approx(both.loss[k].item())


@pytest.mark.parametrize("limit", [1e-3, 0.5, 1e6])
def test_clipping_is_over_a_clients_whole_gradient(limit: float, generator: torch.Generator) -> None:
    model = Model(logistic((4,), 3).double())
    params, _ = model.init(torch.float64, "cpu")
    batch = Batch(10 * normal(generator, 6, 4), integers(generator, 0, 3, 6))
    context, one = at(params, torch.ones(3)), torch.tensor(1)
    free, clipped = (
        local_update(Recipe(model, fedavg(), sgd(1.0), clip), context, [batch], one).delta for clip in (None, limit)
    )
    norm = tree.norm(free, 0)
    factor = min(1.0, limit / norm.item())
    assert_trees_close(clipped, tree.map(lambda leaf: leaf * factor, free), rtol=1e-9)
    leaves = [leaf.clone().requires_grad_() for leaf in params.values()]
    for leaf, delta in zip(leaves, free.values(), strict=True):
        leaf.grad = -delta.clone()
    nn.utils.clip_grad_norm_(leaves, limit)
    for leaf, delta in zip(leaves, clipped.values(), strict=True):
        torch.testing.assert_close(delta, -leaf.grad, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["fedavg", "fednova", "scaffold", "fedopt", "fedlc+fedopt:yogi+scaffold"])
def test_the_order_of_clients_does_not_matter(algorithm: str, generator: torch.Generator) -> None:
    recipe, server, updates = problem(generator, build_algorithm(algorithm))
    weights = torch.tensor([5.0, 20.0, 10.0], dtype=torch.float64)
    turned = [2, 0, 1]
    one = server_update(recipe.algorithm, server, join(updates, new_axis=True), weights, 3 * weights)
    mixed = join([updates[k] for k in turned], new_axis=True)
    other = server_update(recipe.algorithm, server, mixed, weights[turned], 3 * weights)
    for name in ("params", "buffers", "correction", "optimizer"):
        assert_trees_close(getattr(one, name), getattr(other, name))


def test_weights_by_hand(generator: torch.Generator) -> None:
    recipe, server, updates = problem(generator, fedavg())
    weights = torch.tensor([5.0, 20.0, 10.0], dtype=torch.float64)
    after = server_update(recipe.algorithm, server, join(updates, new_axis=True), weights)
    for name, leaf in after.params.items():
        expected = sum(w / 35 * u.delta[name] for w, u in zip((5, 20, 10), updates, strict=True))
        torch.testing.assert_close(leaf - server.params[name], expected, rtol=1e-12, atol=1e-13)


def test_counters_of_a_module_are_averaged_and_rounded() -> None:
    server = Server({"w": torch.zeros(1)}, {"n": torch.tensor(0)}, {}, {})
    update = Update(
        {"w": torch.ones(2, 1)}, {"n": torch.tensor([3, 8])}, {}, {}, torch.ones(2).double(), torch.zeros(2)
    )
    after = server_update(fedavg(), server, update, torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert after.buffers["n"].dtype == torch.int64
    assert after.buffers["n"] == 7  # 6.75


def test_an_update_holds_no_label_counts(generator: torch.Generator) -> None:
    """What leaves a client: nothing in it has the counts, or anything of their shape beside parameters."""
    assert {field.name for field in dataclasses.fields(Update)} == {
        "delta",
        "buffers",
        "client",
        "message",
        "travel",
        "loss",
    }
    _, server, updates = problem(generator, build_algorithm("fedlc+scaffold"))
    for update in updates:
        assert set(update.message) == set(update.delta) == set(server.params)


def test_take_and_join(generator: torch.Generator) -> None:
    _, _, updates = problem(generator, build_algorithm("scaffold"))
    whole = join(updates, new_axis=True)
    assert whole.loss.shape == (3,)
    parts = [take(whole, slice(0, 1)), take(whole, torch.tensor([1, 2]))]
    again = join(parts)
    assert torch.equal(again.travel, whole.travel)
    assert_trees_close(again.delta, whole.delta)
    assert_trees_close(take(whole, slice(1, 2)).message, tree.stack([updates[1].message]))


def test_nothing_that_is_given_is_changed(generator: torch.Generator) -> None:
    model = Model(logistic((4,), 3).double())
    recipe = Recipe(model, build_algorithm("fedlc+scaffold+fedopt"), sgd(0.1, 0.9))
    server = start_server(recipe, *model.init(torch.float64, "cpu"))
    before = {n: tree.map(torch.clone, getattr(server, n)) for n in ("params", "correction", "optimizer")}
    context = dataclasses.replace(at(server.params, torch.ones(3)), client=server.correction, server=server.correction)
    batch = Batch(normal(generator, 5, 4), integers(generator, 0, 3, 5))
    update = local_update(recipe, context, [batch, batch], torch.tensor(2))
    server_update(recipe.algorithm, server, join([update], new_axis=True), torch.ones(1).double())
    for name, kept in before.items():
        for leaf, copy in zip(getattr(server, name).values(), kept.values(), strict=True):
            assert torch.equal(leaf, copy)
            assert not leaf.requires_grad


@pytest.mark.parametrize("algorithm", ["scaffold", "fednova"])
def test_adaptive_clients_with_travel_are_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match=f"{algorithm} needs optimizer=sgd on the client, not adam"):
        Run(algorithm=algorithm, optimizer="adam")
    assert math.isfinite(final("fedavg", optimizer="adam", rounds=1).params["linear.bias"].sum().item())
