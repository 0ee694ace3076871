"""A federation whose model overflows records what a simulation of the same run records."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.core.evaluation import Evaluation
from tests.helpers import assert_trees_close, assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import Array

from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from tests.flower.in_process import THREE, Nodes, in_order_of

FIELDS = {"dataset": "digits", "partition": "dirichlet:0.3", "clients": 3, "rounds": 3, "engine": "serial"}
ONE_STEP = {**FIELDS, "batch_size": 2000}
"""A client's numbers are finite after one step that is too long; the model that it makes overflows."""
OF_THE_MACHINE = {"seconds", "engine", "device"}


def both(run, tmp_path, rules=None):
    """What a simulation and a federation of a run have in their stores, round by round, without the losses: those are
    equal up to rounding."""
    rules = (rules or Rules()).model_copy(update={"store": str(tmp_path / "federated")})
    *_, last = simulate(run, store=tmp_path / "simulated")
    federated = federate(Nodes(client_app(run), THREE), run, rules)
    assert_trees_close(in_order_of(federated.server.used, last.server.used), last.server.used, rtol=1e-6, atol=0)
    stores = [Store(tmp_path / place).folder(run.hash).records() for place in ("simulated", "federated")]
    for name in ("loss", "train_loss"):
        one, other = (np.array([record[name] for record in records], float) for records in stores)  # None is NaN
        np.testing.assert_allclose(one, other, rtol=1e-6)
    left_out = OF_THE_MACHINE | {"loss", "train_loss"}
    return [[{name: record[name] for name in record.keys() - left_out} for record in records] for records in stores]


@pytest.mark.parametrize(("lr", "rounds"), [(1e12, 2), (1e20, 1), (1e38, 1)])
@pytest.mark.parametrize("algorithm", ["fedavg", "refit:asks=4", "refit"])
def test_a_model_whose_outputs_overflow(algorithm, lr, rounds, tmp_path):
    run = Run(**ONE_STEP, model="mlp", lr=lr, algorithm=algorithm)
    simulated, federated = both(run, tmp_path)
    assert federated == simulated
    assert [record["diverged"] for record in federated] == [False] * (rounds - 1) + [True]


@pytest.mark.parametrize("on_bad_reply", ["refuse", "fail"])
def test_a_model_whose_features_overflow(on_bad_reply, tmp_path, caplog):
    """A simulation sees them and does not ask; a server has to."""
    run = Run(**ONE_STEP, model="cnn:width=4,padding=1", lr=1e30, algorithm="refit:asks=4")
    with caplog.at_level(logging.WARNING, "flwr"):
        (simulated,), (federated,) = both(run, tmp_path, Rules(on_bad_reply=on_bad_reply))
    assert federated == {**simulated, "asked": 4 * 3}
    assert (simulated["diverged"], simulated["asked"]) == (True, 0)
    assert not any("is refused" in text for text in caplog.messages)
    stays = "round 1: gradients of clients 0, 1, 2 are not finite; the last layer is the best found before them"
    assert stays in caplog.messages


def overflowing(clients):
    """The gradients of these clients are not finite."""

    def on_its_way(reply):
        if reply.metadata.message_type == "query.readout" and reply.content["metrics"]["client"] in clients:
            for name, leaf in reply.content["layer"].items():
                reply.content["layer"][name] = Array(np.full_like(leaf.numpy(), np.inf))
        return reply

    return on_its_way


@pytest.mark.parametrize(
    ("clients", "min_clients", "fitted"), [([1], 2, True), ([1, 2], 2, False), ([1, 2], 1, True), ([1], 3, False)]
)
def test_gradients_that_are_not_finite_are_the_models_fault_if_too_few_are_left(clients, min_clients, fitted):
    run = Run(**{**FIELDS, "rounds": 1}, model="mlp:hidden=8", algorithm="refit:asks=4")
    grid = Nodes(client_app(run), THREE, overflowing(clients))
    server = federate(grid, run, Rules(min_clients=min_clients)).server
    trained = {name: server.params[name] for name in server.readout}
    assert fitted == any((trained[name] != leaf).any() for name, leaf in server.readout.items())


@pytest.mark.parametrize(("finite_asks", "asks_in_all"), [(0, 1), (1, 4)])
def test_whose_gradients_are_not_finite_is_told(finite_asks, asks_in_all, caplog):
    """Also if a fit was under way. Layers that are not finite are not sent."""
    run, change, asks = (
        Run(**{**FIELDS, "rounds": 1}, model="mlp:hidden=8", algorithm="refit:asks=4"),
        overflowing([1]),
        0,
    )

    def on_its_way(reply):
        nonlocal asks
        asks += reply.metadata.message_type == "query.readout"
        return reply if asks <= len(THREE) * finite_asks else change(reply)

    grid = Nodes(client_app(run), THREE, on_its_way)
    with caplog.at_level(logging.INFO, "flwr"):
        federate(grid, run, Rules(min_clients=3))
    told = [text for text in caplog.messages if "the last layer is" in text]
    assert told == ["round 1: gradients of clients 1 are not finite; the last layer is the best found before them"]
    asked_about = [m.content["layer"] for m in grid.messages if {"layer", "config"} <= m.content.keys()]
    assert all(np.isfinite(leaf.numpy()).all() for layer in asked_about for leaf in layer.values())
    assert len(asked_about) == len(THREE) * asks_in_all


def test_a_silent_client_is_awaited_once_if_too_few_gradients_are_finite(monkeypatch):
    run = Run(**{**FIELDS, "rounds": 1, "clients": 6}, model="mlp:hidden=8", algorithm="refit:asks=8")
    change, asked = overflowing([1, 2, 3]), []

    def on_its_way(reply):
        if reply.metadata.message_type != "query.readout":
            return reply
        asked.append(reply.content["metrics"]["client"])
        return None if asked[-1] == 0 else change(reply)

    six = [{"partition-id": client} for client in range(6)]
    federate(Nodes(client_app(run), six, on_its_way), run, Rules(round_timeout=0.5))
    assert asked.count(0) == 1
    assert asked.count(5) == 2


def test_too_few_gradients_fail_a_run_if_others_are_lost():
    run = Run(**{**FIELDS, "rounds": 1}, model="mlp:hidden=8", algorithm="refit:asks=4")
    change = overflowing([1])

    def on_its_way(reply):
        lost = reply.metadata.message_type == "query.readout" and reply.content["metrics"]["client"] == 2
        return None if lost else change(reply)

    with pytest.raises(RuntimeError, match="1 clients answered the readout properly, but min-clients requires 3"):
        federate(Nodes(client_app(run), THREE, on_its_way), run, Rules(min_clients=3, round_timeout=0.2))


MEASURED = Evaluation(0.5, 0.4, 1.5, [0.5, None], None)


def measured_as(tmp_path, **changes):
    """What is recorded with an evaluation of one's own."""
    run, rules = Run(**FIELDS), Rules(store=str(tmp_path))
    federate(Nodes(client_app(run), THREE), run, rules, evaluate=lambda server: replace(MEASURED, **changes))
    records = Store(tmp_path).folder(run.hash).records()
    names = "accuracy", "loss", "per_class_accuracy", "diverged"
    return [tuple(record[name] for name in names) for record in records]


NAN = [math.nan, np.float32("nan"), torch.tensor(math.nan)]


@pytest.mark.parametrize("nan", NAN)
def test_if_a_loss_of_ones_own_is_not_a_number_the_run_has_diverged(nan, tmp_path, caplog):
    assert measured_as(tmp_path, loss=nan) == [(0.5, None, [0.5, None], True)]
    with caplog.at_level(logging.INFO, "flwr"):
        measured_as(tmp_path, loss=nan)
    done = f"nothing left to do: it diverged in round 1, stored in {tmp_path / Run(**FIELDS).hash}"
    assert done in caplog.messages


@pytest.mark.parametrize("nan", NAN)
def test_another_measure_of_ones_own_that_is_not_a_number_is_missing(nan, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "flwr"):
        found = measured_as(tmp_path, accuracy=nan, per_class_accuracy=[nan])
    assert found == [(None, 1.5, [None], False)] * 3
    assert "round 3/3: 3 clients, accuracy not measured" in caplog.messages


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.tensor])
def test_an_evaluation_of_ones_own_may_have_numbers_of_numpy_and_pytorch(kind, tmp_path):
    changes = {"accuracy": kind(0.25), "loss": kind(2.5), "per_class_accuracy": [kind(0.75)]}
    assert measured_as(tmp_path, **changes) == [(0.25, 2.5, [0.75], False)] * 3


def test_a_share_may_miss_its_range_by_rounding(tmp_path):
    found = measured_as(tmp_path, accuracy=np.float32(1.0000001), per_class_accuracy=np.array([-1e-8, 1]))
    assert found == [(1.0, 1.5, [0.0, 1.0], False)] * 3


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"accuracy": 50.0}, r"evaluate: accuracy is 50\.0; allowed: 0 to 1"),
        ({"per_class_accuracy": [-1]}, r"evaluate: per_class_accuracy is -1\.0; allowed: 0 to 1"),
        ({"client_accuracy": math.inf}, "evaluate: client_accuracy is inf; allowed: 0 to 1"),
        ({"loss": None}, "evaluate: loss is None; allowed: a number"),
        ({"loss": "1.5"}, "evaluate: loss is '1.5'; allowed: a number"),
        ({"loss": 10**400}, "evaluate: loss is 10000.*; allowed: a number"),
        ({"accuracy": True}, "evaluate: accuracy is True; allowed: a number"),
        ({"accuracy": torch.ones(2)}, "evaluate: accuracy is tensor.*; allowed: a number"),
        ({"per_class_accuracy": {0: 0.5}}, "evaluate: per_class_accuracy is {0: 0.5}; allowed: a list"),
        ({"per_class_accuracy": None}, "evaluate: per_class_accuracy is None; allowed: a list"),
        ({"per_class_accuracy": np.array(0.5)}, r"evaluate: per_class_accuracy is array\(0.5\); allowed: a list"),
    ],
)
def test_an_evaluation_of_ones_own_that_cannot_be_recorded_is_refused(wrong, problem, tmp_path):
    """The store stays readable, and the next run measures the round and goes on."""
    run, rules = Run(**FIELDS), Rules(store=str(tmp_path))
    measures = iter([MEASURED, replace(MEASURED, **wrong)])
    with pytest.raises(RuntimeError, match=f"round 2 cannot be measured: {problem}.*; the round is stored"):
        federate(Nodes(client_app(run), THREE), run, rules, evaluate=lambda server: next(measures))
    federate(Nodes(client_app(run), THREE), run, rules, evaluate=lambda server: MEASURED)
    folder = Store(tmp_path).folder(run.hash)
    assert [session["from_round"] for session in folder.sessions()] == [0, 2]
    assert [record["accuracy"] for record in folder.records()] == [0.5, 0.5, 0.5]


def failing(server):
    raise FileNotFoundError("/data/test.npz")


def test_an_evaluation_that_fails_costs_no_round(tmp_path, caplog):
    """Each round is trained once, whichever fails, the last one included; the model is that of a run without faults."""
    run, rules, grids = Run(**FIELDS), Rules(store=str(tmp_path)), []
    folder = Store(tmp_path).folder(run.hash)

    def train(evaluate):
        grids.append(Nodes(client_app(run), THREE))
        return federate(grids[-1], run, rules, evaluate=evaluate)

    said = r"round 1 cannot be measured: test_divergence\.py, line \d+, in failing: FileNotFoundError: "
    with pytest.raises(RuntimeError, match=said):
        train(failing)
    assert [(record["round"], record["accuracy"]) for record in folder.records()] == [(1, None)]
    with pytest.raises(FileNotFoundError):
        train(failing)
    assert not grids[-1].messages
    measures = iter([MEASURED, MEASURED])
    with pytest.raises(RuntimeError, match="round 3 cannot be measured"):
        train(lambda server: next(measures))
    with caplog.at_level(logging.INFO, "flwr"):
        resumed = train(lambda server: MEASURED)
    assert "round 3 is measured now: accuracy 50.00 %" in caplog.messages
    assert [record["accuracy"] for record in folder.records()] == [0.5] * 3
    assert not grids[-1].messages
    assert train(failing).server.params  # nothing left to do
    straight = federate(Nodes(client_app(run), THREE), run, Rules(), evaluate=lambda server: MEASURED)
    assert_trees_equal(in_order_of(resumed.server.params, straight.server.params), straight.server.params)


def test_a_round_measured_later_may_have_diverged(tmp_path):
    run, rules = Run(**FIELDS), Rules(store=str(tmp_path))
    with pytest.raises(RuntimeError, match="round 1 cannot be measured"):
        federate(Nodes(client_app(run), THREE), run, rules, evaluate=failing)
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, rules, evaluate=lambda server: replace(MEASURED, loss=math.nan))
    (record,) = Store(tmp_path).folder(run.hash).records()
    assert record["diverged"]
    assert not grid.messages


def test_an_evaluation_of_ones_own_is_an_evaluation():
    run = Run(**FIELDS)
    with pytest.raises(RuntimeError, match=r"evaluate returned 0\.5; allowed: an Evaluation, or None$"):
        federate(Nodes(client_app(run), THREE), run, Rules(), evaluate=lambda server: 0.5)
