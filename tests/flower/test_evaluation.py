"""Nodes that measure the model on test examples of their own, because the server has none."""

import logging
from pathlib import Path

import numpy as np
import pytest

from fedskew import Run, Store, simulate
from tests.cli.calling import call

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from PIL import Image

from fedskew.core.evaluation import Evaluation
from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from tests.flower.in_process import Nodes
from tests.flower.recording import describe, leaks
from tests.flower.replies import with_a_record, with_number

FIELDS = {"clients": 3, "rounds": 2, "model": "mlp:hidden=8", "lr": 0.3, "batch_size": 16, "engine": "serial"}
RUN = Run(dataset="nodes:6,4", **FIELDS)
TESTS = [7, 20, 11]


def examples(sizes, seed):
    """Four noisy classes; clients have them in different shares."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    y = np.where(generator.random(len(owner)) < 0.5, owner, generator.integers(0, 4, len(owner)))
    centres = np.random.default_rng(5).normal(size=(4, 6))
    return (centres[y] + generator.normal(size=(len(y), 6))).astype(np.float32), y, owner


def write_whole(folder):
    """All examples in one file with owners; the data set of a simulation."""
    (x, y, owner), (x_test, y_test, tester) = examples([40, 60, 25], 0), examples(TESTS, 1)
    arrays = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    np.savez(folder / "whole.npz", **arrays, client_train=owner, client_test=tester)
    return f"npz:{folder / 'whole.npz'}"


def write_parts(folder):
    """Each client's examples in a file of its own; the configurations of their nodes."""
    made = []
    with np.load(folder / "whole.npz") as file:
        for client in range(3):
            parts = {}
            for part in ("train", "test"):
                mine = file[f"client_{part}"] == client
                parts |= {name: file[name][mine] for name in (f"x_{part}", f"y_{part}")}
            np.savez(folder / f"client{client}.npz", **parts)
            made.append({"client-id": client, "data": str(folder / f"client{client}.npz")})
    return made


@pytest.fixture
def whole(tmp_path):
    return write_whole(tmp_path)


@pytest.fixture
def configs(tmp_path, whole):
    return write_parts(tmp_path)


def untested(config):
    """The same node without test examples."""
    with np.load(config["data"]) as file:
        kept = {name: file[name] for name in ("x_train", "y_train")}
    np.savez(config["data"], **kept)


def asked(grid):
    """The clients that were asked to evaluate, by round."""
    asks = [
        m.content["config"] for m in grid.messages if m.metadata.message_type == "evaluate" and "config" in m.content
    ]
    return [(ask["round"], ask["client"]) for ask in asks]


def scores_of(client, change, round=1):
    """Change the answer of a client to the question how good a model is."""

    def on_its_way(reply):
        metrics = reply.content.metric_records.get("metrics", {}) if reply.has_content() else {}
        mine = reply.metadata.message_type == "evaluate" and (metrics.get("client"), metrics.get("round")) == (
            client,
            round,
        )
        return change(reply) if mine else reply

    return on_its_way


def trained(tmp_path, grid, run=RUN, **rules):
    """The records of a federation."""
    federate(grid, run, Rules(store=str(tmp_path / "runs"), round_timeout=0.5, start_timeout=0.5, **rules))
    return Store(tmp_path / "runs").folder(run.hash).records()


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "fedlc"},
        {"algorithm": "fedlc+refit:asks=5"},
        {"algorithm": "scaffold", "clients_per_round": 2, "rounds": 13, "eval_every": 2},
        {"model": f"{__file__}:normed"},
    ],
    ids=["plain", "readout", "some rounds", "batch norm"],
)
def test_nodes_measure_what_a_simulation_does(more, whole, configs, tmp_path):
    """Also those that were not sampled, in the same rounds, and the model as it is used."""
    run = RUN.replace(**more)
    expected = list(simulate(Run(**{**FIELDS, **more}, dataset=whole, partition="natural")))
    grid = Nodes(client_app(run), configs)
    records = trained(tmp_path, grid, run)
    for name in ("accuracy", "client_accuracy"):
        assert [record[name] for record in records] == [getattr(record, name) for record in expected]
    losses = [record["loss"] for record in records], [record.loss for record in expected]
    np.testing.assert_allclose(*(np.array(kept, float) for kept in losses), rtol=1e-5)  # None is NaN
    assert {record["balanced_accuracy"] for record in records} == {None}
    evaluated = [record.round for record in expected if record.accuracy is not None]
    assert asked(grid) == [(round, client) for round in evaluated for client in range(3)]
    assert len(evaluated) < run.rounds or "eval_every" not in more


def normed():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def test_a_run_that_nodes_have_measured_is_shown_like_any_other(configs, tmp_path, capsys, caplog):
    with caplog.at_level(logging.INFO, "flwr"):
        *_, last = trained(tmp_path, Nodes(client_app(RUN), configs))
    assert f"round 2/2: 3 clients, accuracy {100 * last['accuracy']:.2f} %" in caplog.messages
    assert "round 2: 3 of 3 nodes with test examples have measured the model, on 38 examples" in caplog.messages
    assert "node 101 has joined: client 1 with 60 examples and 20 test examples" in caplog.messages
    assert (last["balanced_accuracy"], last["per_class_accuracy"]) == (None, None)
    trained(tmp_path, Nodes(client_app(RUN.replace(algorithm="fedlc")), configs), RUN.replace(algorithm="fedlc"))
    runs, page, figures = (str(tmp_path / name) for name in ("runs", "report.html", "figures"))
    shown = {}
    for command in (["runs", "list"], ["runs", "show", RUN.hash], ["report", "-o", page, "--figures", figures]):
        code, shown[command[1]], err = call(capsys, *command, "--runs", runs)
        assert code == 0, err
    assert f"{100 * last['accuracy']:.2f}" in shown["list"]
    assert f"client_accuracy      {last['client_accuracy']:.4g}" in shown["show"]
    assert f"{100 * last['accuracy']:.2f}" in Path(page).read_text()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (with_number("correct", 8), "correct is 8; allowed: up to num-examples, which is 7"),
        (with_number("correct", 2.5), "correct is 2.5; allowed: integers of at least 0"),
        (with_number("correct", -1), "correct is -1"),
        (with_number("num-examples", 700), "num-examples is 700; when the node joined it had 7"),
        (with_number("loss", float("nan")), "loss is nan; allowed: finite numbers"),
        (with_number("loss", -1.0), "loss is -1.0; allowed: numbers of at least 0"),
        (with_number("client", 1), "client is 1; expected: 0"),
        (with_number("class-0", 3), "numbers are class-0"),
        (with_a_record, "records are metrics, more"),
        (lambda reply: None, "no reply in time; round-timeout is 0.5 s"),
    ],
)
def test_a_wrong_or_lost_answer_is_named_and_left_out(change, problem, configs, tmp_path, caplog):
    whole = trained(tmp_path / "whole", Nodes(client_app(RUN), configs))
    grid = Nodes(client_app(RUN), configs, scores_of(0, change))
    with caplog.at_level(logging.WARNING, "flwr"):
        records = trained(tmp_path, grid)
    assert any("node 100, client 0" in text and problem in text for text in caplog.messages)
    assert "round 1: 2 of 3 nodes with test examples have measured the model, on 31 examples" in caplog.messages
    own = scores(grid, 1)
    assert records[0]["accuracy"] == sum(own[client] for client in (1, 2)) / 31
    assert records[0]["client_accuracy"] == pytest.approx((own[1] / 20 + own[2] / 11) / 2)
    assert [(record["measured_by"], record["measured_on"]) for record in records] == [([1, 2], 31), ([0, 1, 2], 38)]
    assert records[1]["accuracy"] == whole[1]["accuracy"]  # it counts again, and trains as if nothing had happened


@pytest.mark.parametrize(("round", "told"), [(1, False), (4, True)])
def test_a_mean_of_rounds_that_different_clients_measured_says_so(round, told, configs, tmp_path, capsys):
    """Only of rounds that are in the mean."""
    run = RUN.replace(rounds=4)
    trained(tmp_path, Nodes(client_app(run), configs, scores_of(0, lambda reply: None, round)), run)
    _, shown, _ = call(capsys, "runs", "show", run.hash, "--runs", str(tmp_path / "runs"))
    said = "the rounds in accuracy_last10 were measured by different clients: 0, 1, 2 (38 examples); 1, 2 (31 examples)"
    assert (said in shown) == told


def scores(grid, round):
    """How many examples each client got right."""
    found = [m.content["metrics"] for m in grid.messages if "correct" in m.content.get("metrics", {})]
    return {metrics["client"]: metrics["correct"] for metrics in found if metrics["round"] == round}


def test_one_node_cannot_outweigh_all_others_with_examples_that_it_claims(configs, tmp_path, caplog):
    def boasts(reply):
        config = reply.content.config_records.get("config", {})
        if config.get("client") == 0:
            config["num-test-examples"] = 10**6
        return scores_of(0, lambda score: with_number("num-examples", 10**6)(with_number("correct", 10**6)(score)))(
            reply
        )

    with caplog.at_level(logging.WARNING, "flwr"):
        first, _ = trained(tmp_path, Nodes(client_app(RUN), configs, boasts))
    assert any("num-examples is 1000000; max-examples is auto and allows 20000" in text for text in caplog.messages)
    assert first["accuracy"] < 1


def test_without_an_answer_nothing_is_measured_and_the_run_goes_on(configs, tmp_path, caplog):
    silent = Nodes(client_app(RUN), configs, lambda reply: None if reply.metadata.message_type == "evaluate" else reply)
    with caplog.at_level(logging.WARNING, "flwr"):
        records = trained(tmp_path, silent)
    assert [(record["accuracy"], record["clients"], record["diverged"]) for record in records] == [(None, 3, False)] * 2
    assert not any({"measured_by", "measured_on"} & record.keys() for record in records)
    assert "round 2: 0 of 3 nodes with test examples have measured the model, on 0 examples" in caplog.messages


@pytest.mark.parametrize(("overflown", "diverged"), [([0], False), ([0, 1], True)])
def test_a_loss_that_is_no_number_is_the_models_fault_if_most_nodes_find_it(overflown, diverged, configs, tmp_path):
    def change(reply):
        for client in overflown:
            reply = scores_of(client, with_number("loss", float("nan")))(reply)
        return reply

    records = trained(tmp_path, Nodes(client_app(RUN), configs, change))
    assert [record["diverged"] for record in records] == ([True] if diverged else [False, False])


def test_a_node_without_test_examples_says_so_and_is_not_asked(configs, tmp_path, caplog):
    untested(configs[1])
    grid = Nodes(client_app(RUN), configs)
    with caplog.at_level(logging.INFO, "flwr"):
        records = trained(tmp_path, grid)
    assert "node 101 has joined: client 1 with 60 examples and no test examples" in caplog.messages
    assert asked(grid) == [(1, 0), (1, 2), (2, 0), (2, 2)]
    assert records[1]["accuracy"] == (scores(grid, 2)[0] + scores(grid, 2)[2]) / 18


def test_nobody_is_asked_if_the_server_measures(whole, configs, tmp_path):
    of_its_own = Nodes(client_app(RUN), configs)
    federate(of_its_own, RUN, Rules(), evaluate=lambda server: Evaluation(0.5, 0.5, 1.0, []))
    run = Run(**FIELDS, dataset=whole, partition="natural")
    with_data = Nodes(client_app(run), configs)
    federate(with_data, run, Rules())
    assert asked(of_its_own) == asked(with_data) == []
    joined = [m.content["config"] for m in with_data.messages if "num-examples" in m.content.get("config", {})]
    assert not any("num-test-examples" in config for config in joined)


def test_differential_privacy_leaves_evaluation_on_nodes_off(configs, caplog):
    run = RUN.replace(weighting="uniform")
    local = Nodes(client_app(run, mods=[LocalDpMod(1.0, 0.0, 1.0, 1e-5)]), configs)
    central = Nodes(client_app(run), configs)
    with caplog.at_level(logging.INFO, "flwr"):
        federate(local, run, Rules())
        federate(central, run, Rules(), wrap=lambda s: DifferentialPrivacyServerSideFixedClipping(s, 0.1, 1.0, 3))
    assert asked(local) == asked(central) == []
    assert "node 100 has joined: client 0 with 40 examples and no test examples" in caplog.messages
    assert "test examples are not used: what they measure would be sent without noise" in caplog.messages
    assert "nodes are not asked to measure the model: their answers would have no noise" in caplog.messages


def test_a_node_with_differential_privacy_or_without_test_examples_does_not_evaluate(configs):
    """Also if a server asks it, as it may have asked others."""
    asking = Nodes(client_app(RUN), configs)
    federate(asking, RUN, Rules())
    ask = next(m for m in asking.messages if m.metadata.message_type == "evaluate")
    untested(configs[1])
    for mods, node in (([LocalDpMod(1.0, 0.0, 1.0, 1e-5)], 100), ([], 101)):
        grid = Nodes(client_app(RUN, mods=mods), configs)
        with pytest.raises(ValueError, match="this node does not evaluate"):
            grid.app(ask, grid.contexts[node])


def test_no_message_has_label_counts(whole, configs, tmp_path):
    grid = Nodes(client_app(RUN), configs)
    federate(grid, RUN, Rules())
    with np.load(tmp_path / "whole.npz") as file:
        pairs = ((file[f"client_{part}"], file[f"y_{part}"]) for part in ("train", "test"))
        counts = np.concatenate([[np.bincount(y[owner == k], minlength=4) for k in range(3)] for owner, y in pairs])
    for message in (describe("any", message) for message in grid.messages):
        metrics = message["records"].get("metrics", {})
        metrics.pop("correct", None)  # of all classes together; it may happen to be a count
        message["records"].get("config", {}).pop("num-test-examples", None)
        assert leaks(message, counts) == []
        assert set(metrics) <= {"client", "round", "num-examples", "steps", "loss"}


def test_a_folder_with_images_for_training_and_for_testing(tmp_path):
    run = Run(dataset="nodes:3x6x6,2,mean=100/100/100,std=50/50/50,names=cat/dog", clients=2, rounds=1, model="mlp")
    generator = np.random.default_rng(0)
    for client, part, name, number in [(0, "train", "cat", 5), (0, "test", "dog", 3), (1, "train", "dog", 4)]:
        (tmp_path / str(client) / part / name).mkdir(parents=True)
        for i in range(number):
            pixels = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / str(client) / part / name / f"{i}.png")
    grid = Nodes(client_app(run), [{"client-id": k, "data": str(tmp_path / str(k))} for k in range(2)])
    (record,) = trained(tmp_path, grid, run)
    assert asked(grid) == [(1, 0)]
    assert record["accuracy"] in (0.0, 1 / 3, 2 / 3, 1.0)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x_test": np.zeros((3, 6), np.float32)}, "has no y_test; a client's own file needs x_test and y_test"),
        ({"x_test": np.zeros((3, 6), np.float32), "y_test": np.arange(2)}, "y_test is int64 [2] for examples [3, 6]"),
        ({"x_test": np.zeros((3, 5), np.float32), "y_test": np.arange(3)}, "shape [5]; allowed: [6]"),
        ({"x_test": np.zeros((3, 6), np.uint8), "y_test": np.arange(3)}, "examples are uint8"),
        ({"x_test": np.zeros((3, 6), np.float32), "y_test": np.arange(3) + 2}, "test label 4 is outside 0..3"),
        ({"x_test": np.zeros((0, 6), np.float32), "y_test": np.zeros(0, int)}, None),
    ],
)
def test_wrong_test_examples_are_named_when_a_node_joins(arrays, problem, configs, tmp_path, caplog):
    untested(configs[2])
    with np.load(configs[2]["data"]) as file:
        kept = dict(file)
    np.savez(configs[2]["data"], **kept, **arrays)
    with caplog.at_level(logging.INFO, "flwr"):
        records = trained(tmp_path, Nodes(client_app(RUN), configs))
    assert records[1]["clients"] == (3 if problem is None else 2)
    refused = [text for text in caplog.messages if "node 102 is refused" in text]
    assert bool(refused) == (problem is not None)
    assert all(problem in text for text in refused)
