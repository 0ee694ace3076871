"""Losses and ascents that use the states of a correction: MOON, whose loss runs the client's last model, and FedLESAM,
whose ascent leads back to the model that the client received before. Both against a plain loop in float64, in every
engine."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedskew import Algorithm, Correction, Run, simulate
from fedskew.core import tree
from fedskew.core.round import Context
from fedskew.core.tree import Params
from fedskew.engine import ENGINES
from fedskew.simulation.plan import sampled_clients
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import assert_trees_close

RHO = 0.5
FIELDS: dict[str, Any] = {
    "dataset": "digits",
    "partition": "dirichlet:0.5",
    "clients": 4,
    "clients_per_round": 3,
    "rounds": 4,
    "local_epochs": 2,
    "batch_size": 128,
    "lr": 0.1,
    "precision": "fp64",
    "model": "mlp:hidden=8",
}


@dataclass(frozen=True)
class LastReceived(Correction):
    def client_state(self, params: Params) -> Params:
        return params

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, tree.map(lambda anchor, like: anchor.expand_as(like), context.anchor, delta), {}


def back(params: Params, grads: Params, context: Context) -> Params:
    away = tree.sub(context.client, context.anchor)
    length = tree.norm(away, context.travel.ndim) + 1e-12
    return {name: leaf + RHO * tree.divide(away, length)[name] for name, leaf in params.items()}


def from_examples(name: str) -> ModuleType:
    file = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


METHODS = {
    "moon": from_examples("moon").moon(mu=2.0),
    "fedlesam": Algorithm("fedlesam", ascents=(back,), correction=LastReceived()),
}


def run_of(method: str, **more: Any) -> Run:
    return Run(**{**FIELDS, "algorithm": METHODS[method], **more})


def features(params: Params, x: Tensor) -> Tensor:
    return functional.linear(x.flatten(1), params["hidden.0.weight"], params["hidden.0.bias"]).relu()


def gradient(method: str, params: Params, received: Params, kept: Params, x: Tensor, y: Tensor) -> Params:
    """Of MOON's loss at a client's model; FedLESAM's, at a point towards the model that it received before."""
    away = tree.sub(kept, received)
    length = float(torch.cat([leaf.flatten() for leaf in away.values()]).norm())
    if method == "fedlesam" and length:
        params = {name: leaf + RHO / length * away[name] for name, leaf in params.items()}
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    ours = features(leaves, x)
    loss = functional.cross_entropy(functional.linear(ours, leaves["linear.weight"], leaves["linear.bias"]), y)
    if method == "moon":
        alike = [functional.cosine_similarity(ours, features(other, x)) / 0.5 for other in (received, kept)]
        loss = loss - 2.0 * torch.stack(alike, 1).log_softmax(1)[:, 0].mean()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def by_hand(run: Run, method: str) -> Params:
    simulation = Simulation(run)
    federation, data = simulation.federation, simulation.federation.dataset
    x, y = data.prepare(data.x_train, torch.float64), data.y_train
    model = simulation.server.params
    kept = [model] * run.clients
    for round in range(1, run.rounds + 1):
        clients = sampled_clients(run, round)
        ended = {}
        for client in clients:
            own = model
            order = federation.shuffled(np.array([client]), run.seed, round, run.local_epochs)
            for epoch in np.split(order, run.local_epochs):
                for batch in torch.from_numpy(epoch).split(run.batch_size):
                    grads = gradient(method, own, model, kept[client], x[batch], y[batch])
                    own = {name: leaf - run.lr * grads[name] for name, leaf in own.items()}
            ended[client], kept[client] = own, own if method == "moon" else model
        sizes = federation.sizes(clients)
        model = {
            name: sum(ended[client][name] * int(size) for client, size in zip(clients, sizes, strict=True))
            / sizes.sum()
            for name in model
        }
    return model


@pytest.mark.parametrize("method", METHODS)
def test_every_engine_computes_the_equation(method: str) -> None:
    expected = by_hand(run_of(method), method)
    assert Simulation(run_of(method)).engine_name == "stacked"
    for engine in ENGINES:
        last = list(simulate(run_of(method, engine=engine)))[-1].server
        assert last is not None
        assert_trees_close(last.params, expected, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_seeds_together_equal_each_alone(method: str) -> None:
    together = [Simulation(run_of(method, seed=seed)) for seed in (0, 1)]
    for _ in range(FIELDS["rounds"]):
        advance(together)
    for simulation in together:
        assert_trees_close(simulation.server.params, by_hand(simulation.run, method), rtol=1e-9)


def test_a_loss_may_run_a_module_that_knows_one_client() -> None:
    """torch.vmap gives it the parameters of each."""
    nn = torch.nn
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    both = [run_of("moon", model=module, engine=engine) for engine in ("serial", "stacked")]
    one, other = (list(simulate(run))[-1].server for run in both)
    assert one is not None
    assert other is not None
    assert_trees_close(one.params, other.params, rtol=1e-9)
