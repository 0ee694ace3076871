"""A federation gives what a simulation of the same run gives."""

import logging

import pytest

from fedskew import Run, simulate
from fedskew.algorithms import ALGORITHMS
from tests.helpers import OWN, assert_trees_close, assert_trees_equal
from tests.helpers.parts import COMBINATIONS, fields_for

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from tests.flower.in_process import Nodes

DIGITS = {"dataset": "digits", "partition": "dirichlet:0.3", "clients": 3, "rounds": 3, "lr": 0.1, "batch_size": 32}


def partitions(run):
    return [{"partition-id": client} for client in range(run.clients)]


def final(run):
    *_, last = simulate(run)
    return last


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, *COMBINATIONS])
def test_every_method(algorithm):
    run = Run(**DIGITS, **fields_for(algorithm), algorithm=algorithm, engine="serial")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.params, final(run).server.params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"clients": 8, "clients_per_round": 3, "algorithm": "scaffold"},
        {"clients": 8, "clients_per_round": 3, "algorithm": "scaffold:mean=uniform"},
        {"clients": 6, "clients_per_round": 3, "algorithm": "feddyn+fedavgm"},
        {"algorithm": "fedlc+scaffold+fednova+fedopt:server=yogi"},
        {"clients": 6, "dropout_rate": 0.4, "weighting": "uniform", "algorithm": "scaffold"},
        {"momentum": 0.9, "local_epochs": 2, "algorithm": "fednova", "lr_schedule": "step:2"},
        {"model": "cnn:width=4,padding=1", "rounds": 2, "algorithm": "fedlc+scaffold"},
        {"augment": "crop_flip", "precision": "fp64"},
        {"clients": 2, "dropout_rate": 0.9, "rounds": 4},
        {"clients": 5, "algorithm": "fedlc+trimmed", "weighting": "uniform", "model": "cnn:width=4,padding=1"},
    ],
)
def test_every_way_of_running(more):
    run = Run(**{**DIGITS, **more}, engine="serial")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    expected = final(run)
    assert_trees_close(federated.server.params, expected.server.params, rtol=1e-6, atol=1e-6)
    assert_trees_close(federated.server.buffers, expected.server.buffers, rtol=1e-6, atol=1e-6)


def test_a_clients_first_state_is_of_the_initial_model():
    """Also if the client is first sampled in a later round."""
    some = {"clients": 6, "clients_per_round": 2}
    run = Run(**{**DIGITS, **some}, algorithm=f"{OWN.parent / 'own_methods.py'}:attached", engine="serial")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.params, final(run).server.params, rtol=1e-6, atol=1e-6)


def test_a_buffer_that_is_not_finite_from_the_start():
    run = Run(**DIGITS, model=f"{OWN.parent / 'own_methods.py'}:masked", engine="serial")
    federated, expected = federate(Nodes(client_app(run), partitions(run)), run, Rules()), final(run)
    assert_trees_close(federated.server.params, expected.server.params, rtol=1e-6, atol=1e-6)
    assert_trees_equal(federated.server.buffers, expected.server.buffers)


def test_frozen_parameters_are_of_the_runs_type_on_nodes():
    """They come with no message."""
    model = f"{OWN.parent / 'own_methods.py'}:probe"
    run = Run(**DIGITS, model=model, algorithm="refit:asks=3", engine="serial", precision="fp64")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.used, final(run).server.used)


@pytest.mark.parametrize(
    "algorithm", ["noise", "private", "remembered", "started", "blurred", "guessed", "tossed", "lazy"]
)
def test_parts_of_ones_own_draw_the_same_numbers(algorithm):
    run = Run(**DIGITS, algorithm=f"{OWN.parent / 'own_methods.py'}:{algorithm}", engine="serial")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.used, final(run).server.used, rtol=1e-5, atol=1e-5)


def test_a_readout_that_asks_nobody_has_lost_nobody(caplog):
    run = Run(**DIGITS, algorithm=f"{OWN.parent / 'own_methods.py'}:halved", engine="serial")
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.used, final(run).server.used, rtol=1e-5, atol=1e-5)
    assert caplog.messages == []


def test_natural_clients():
    run = Run(dataset="synthetic:1,1,max_size=60", clients=4, rounds=2, algorithm="fedlc", engine="serial")
    federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert_trees_close(federated.server.params, final(run).server.params, rtol=1e-6, atol=1e-6)


def test_a_method_in_a_file_of_the_app(tmp_path, monkeypatch):
    """It is in another place on every machine, and the same run."""
    code = "from fedskew.losses import calibrated\ndef mine(tau: float = 2.0):\n    return calibrated(tau)\n"
    hashes = set()
    for machine in ("server", "node"):
        (tmp_path / machine).mkdir()
        (tmp_path / machine / "method_of_mine.py").write_text(code)
        with monkeypatch.context() as there:
            there.syspath_prepend(tmp_path / machine)
            run = Run(**DIGITS, algorithm="method_of_mine.py:mine")
            hashes.add(run.hash)
            federated = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    assert len(hashes) == 1
    expected = final(Run(**DIGITS, algorithm="fedlc:tau=2", engine="serial"))
    assert_trees_close(federated.server.params, expected.server.params, rtol=1e-6, atol=1e-6)


def test_the_order_of_the_nodes_changes_nothing():
    run = Run(**DIGITS, algorithm="fedlc+scaffold")
    one = federate(Nodes(client_app(run), partitions(run)), run, Rules())
    other = federate(Nodes(client_app(run), partitions(run)[::-1]), run, Rules())
    assert_trees_equal(one.server.params, other.server.params)
