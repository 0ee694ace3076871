import pytest
import torch

from fedskew import Run
from fedskew.core.evaluation import evaluate_model
from fedskew.core.round import Server
from fedskew.diagnostics.repairs import refitted, repairs, settled
from fedskew.simulation.simulation import Simulation, advance

SHAPES = {"dataset": "shapes:train=400,test=300", "model": "cnn:width=16,padding=1", "clients": 2, "batch_size": 32}


def started(**fields):
    return Simulation(Run(**{"partition": "iid", "lr": 0.05, "momentum": 0.9, **fields}))


def state_of(simulation):
    return simulation.server.params, simulation.server.buffers


def accuracy(simulation, state):
    return evaluate_model(simulation.model, *state, simulation.federation.dataset).accuracy


def test_a_ruined_head_is_mended_by_the_head_alone():
    """The last layer's rows change places: every answer is wrong, the features are as good as before."""
    simulation = started(dataset="digits", model="mlp", lr=0.1, batch_size=16, clients=3)
    for _ in range(8):
        advance([simulation])
    data, (params, buffers) = simulation.federation, state_of(simulation)
    good = accuracy(simulation, (params, buffers))
    turned = {name: leaf.roll(1, 0) if len(leaf) == 10 else leaf for name, leaf in params.items()}
    found = repairs(simulation.model, Server(turned, buffers, {}, {}), data)
    assert found["as_is"] < 0.1
    assert found["head"] >= good - 0.02
    assert found["norms"] is found["both"] is None  # no batch norm


def test_ruined_statistics_are_mended_by_the_norms_alone():
    simulation = started(**SHAPES)
    for _ in range(2):
        advance([simulation])
    data, (params, buffers) = simulation.federation, state_of(simulation)
    settled_before = settled(simulation.model, (params, buffers), data)
    ruined = {name: leaf + 3 if name.endswith("mean") else leaf for name, leaf in buffers.items()}
    after = settled(simulation.model, (params, ruined), data)
    for name, leaf in settled_before[1].items():
        assert (after[1][name] - leaf).abs().max() < 0.02 * (1 + leaf.abs().max()), name
    found = repairs(simulation.model, Server(params, ruined, {}, {}), data)
    assert found["norms"] == pytest.approx(accuracy(simulation, settled_before), abs=0.02)
    assert set(found) == {"as_is", "norms", "head", "both"}


def test_mending_changes_nothing_else():
    simulation = started(dataset="digits", model="mlp", lr=0.1, batch_size=16, clients=3)
    before = {name: leaf.clone() for name, leaf in simulation.server.params.items()}
    after, _ = refitted(simulation.model, state_of(simulation), simulation.federation)
    changed = {name for name, leaf in before.items() if not torch.equal(after[name], leaf)}
    assert changed == set(list(before)[-2:])
    assert all(torch.equal(simulation.server.params[name], leaf) for name, leaf in before.items())


def test_features_that_never_change_do_no_harm():
    """Some pixels of digits are the same in every image."""
    simulation = started(dataset="digits", model="logistic", lr=0.1, batch_size=16, clients=3)
    for _ in range(5):
        advance([simulation])
    found = repairs(simulation.model, simulation.server, simulation.federation)
    assert found["head"] >= found["as_is"] - 0.02
    assert found["norms"] is None
