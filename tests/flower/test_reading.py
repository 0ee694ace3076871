"""A federation reads its model out as a simulation does, by gradients that nodes send."""

import logging
from collections import Counter

import numpy as np
import pytest
import torch

from fedskew import Run, Store, load_model, simulate
from fedskew.core.reading import client_gradient
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.simulation.plan import Plan, build_federation
from fedskew.simulation.records import RoundRecord
from fedskew.simulation.traffic import bytes_sent
from tests.flower.replies import renamed, with_a_record, with_number
from tests.helpers import assert_trees_close, assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import Array, ConfigRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from fedskew.flower import LabelSkew, Rules, client_app, reading
from fedskew.flower.server import federate
from tests.flower.in_process import THREE, Nodes, in_order_of

FIELDS = {
    "dataset": "digits", "partition": "shards:4", "clients": 3, "model": "mlp:hidden=8", "lr": 0.1, "batch_size": 64,
    "engine": "serial",
}  # fmt: skip
RUN = Run(**FIELDS, rounds=2, algorithm="fedlc+refit:asks=12")
ONE = RUN.model_copy(update={"rounds": 1})
ASKS = "query.readout"


def asked(grid):
    """The asks that the server sent, as contents."""
    sent = (m for m in grid.messages if not m.metadata.reply_to_message_id)
    return [message.content for message in sent if message.metadata.message_type == ASKS]


def asks(grid):
    """The clients that each ask went to, ask by ask."""
    found: list[list[int]] = []
    for config in (content["config"] for content in asked(grid)):
        if not found or config["client"] in found[-1]:
            found.append([])
        found[-1].append(config["client"])
    return found


def gradients_of(client, change, since=1):
    """Change the gradients of a client on their way, from its so-many-th answer on."""
    seen = []

    def on_its_way(reply):
        if reply.metadata.message_type != ASKS or reply.content["metrics"]["client"] != client:
            return reply
        seen.append(reply)
        return change(reply) if len(seen) >= since else reply

    return on_its_way


def fit_of(server, run, clients):
    """The readout of a model by the examples of some clients, in one place."""
    federation = build_federation(run)
    data, algorithm = federation.dataset, run.build_algorithm()
    there = torch.cat([federation.indices[client] for client in clients])
    hidden = [leaf for name, leaf in server.params.items() if name not in server.readout]
    rows, biases = server.readout
    x, labels = data.prepare(data.x_train[there], torch.float32).flatten(1), data.y_train[there]
    known = torch.relu(torch.nn.functional.linear(x, *hidden))

    def ask(weight, bias):
        loss, by_weight, by_bias = client_gradient(known, labels, weight, bias)
        return float(loss) / len(labels), by_weight / len(labels), by_bias / len(labels)

    weight, bias = algorithm.readout.fit(server.params[rows], server.params[biases], ask)
    return {rows: weight, biases: bias}


def mean_loss(server, layer, run, clients):
    """Cross entropy of a model with this layer on the examples of some clients."""
    federation = build_federation(run)
    data, there = federation.dataset, torch.cat([federation.indices[client] for client in clients])
    model = Plan.of(run, data).model
    x = data.prepare(data.x_train[there], torch.float32)
    said, _ = model.apply({**server.params, **layer}, server.buffers, x, train=False)
    return float(torch.nn.functional.cross_entropy(said.logits, data.y_train[there]))


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "fedlc+refit"},
        {"clients": 6, "partition": "shards:2", "clients_per_round": 2, "algorithm": "scaffold+refit:asks=12"},
        {"model": "cnn:width=4,padding=1", "rounds": 1, "algorithm": "fedlc+refit:asks=8"},
        {"validation": 0.2, "precision": "fp64", "rounds": 1},
    ],
)
def test_every_measured_round_is_that_of_a_simulation(more, tmp_path):
    run = Run(**{**FIELDS, "rounds": 2, "algorithm": "fedlc+refit:asks=12", **more})
    nodes = [{"partition-id": client} for client in range(run.clients)]
    federated = federate(Nodes(client_app(run), nodes), run, Rules(store=str(tmp_path))).server
    records = list(simulate(run))
    kept = [RoundRecord.stored(record) for record in Store(tmp_path).folder(run.hash).records()]
    assert [record.accuracy for record in kept] == [record.accuracy for record in records]
    assert bytes_sent(run, kept) == bytes_sent(run, records)
    assert all(sent > 0 for sent in bytes_sent(run, kept).fits)
    expected = records[-1].server
    assert_trees_close(federated.params, expected.params, rtol=1e-6, atol=1e-6)
    assert_trees_close(federated.readout, expected.readout, rtol=1e-3, atol=1e-3)
    for name, leaf in federated.readout.items():
        assert float((leaf - federated.params[name]).norm()) > 10 * float((leaf - expected.readout[name]).norm())


def test_it_is_not_the_trained_model(tmp_path):
    plain = RUN.model_copy(update={"algorithm": "fedlc"})
    for run in (plain, RUN):
        federate(Nodes(client_app(run), THREE), run, Rules(store=str(tmp_path)))
    without, fitted = (Store(tmp_path).folder(run.hash).records()[-1]["accuracy"] for run in (plain, RUN))
    assert fitted > without + 0.05


def test_only_measured_rounds_are_read_out():
    run = RUN.model_copy(update={"rounds": 13, "eval_every": 2, "algorithm": "fedlc+refit:asks=2"})
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, Rules())
    assert {content["config"]["round"] for content in asked(grid)} == {2, *range(4, 14)}


def test_the_time_of_a_fit_is_the_rounds_and_that_of_an_evaluation_is_not(monkeypatch, tmp_path):
    """With a clock that goes on only in these two."""
    clock = [0.0]
    fit = reading.fit

    def slow_fit(*given):
        clock[0] += 60
        return fit(*given)

    def slow_evaluation(server):
        clock[0] += 1000

    monkeypatch.setattr(reading, "fit", slow_fit)
    monkeypatch.setattr("fedskew.flower.server.time.perf_counter", lambda: clock[0])
    federate(Nodes(client_app(RUN), THREE), RUN, Rules(store=str(tmp_path)), evaluate=slow_evaluation)
    assert [record["seconds"] for record in Store(tmp_path).folder(RUN.hash).records()] == [60, 60]


def with_array(make):
    """Change the gradient by the bias."""

    def change(reply):
        _, name = reply.content["layer"]
        reply.content["layer"][name] = Array(make(reply.content["layer"][name].numpy()))
        return reply

    return change


def lost(reply):
    return None


BAD = {
    "not finite": with_array(lambda x: np.full_like(x, np.nan)),
    "has shape": with_array(lambda x: x[:-1]),
    "float64 for": with_array(lambda x: x.astype(np.float64)),
    "examples allow at most as many": with_array(lambda x: np.full_like(x, 1e4)),
    "layer has no": renamed("layer"),
    "records are": with_a_record,
    "numbers are": with_number("steps", 3),
    "num-examples is 0": with_number("num-examples", 0),
    "num-examples is 5; when the node joined": with_number("num-examples", 5),
    "client is 2; expected: 1": with_number("client", 2),
    "round is 7; expected: 1": with_number("round", 7),
    "loss is inf": with_number("loss", float("inf")),
    "loss is -1.0": with_number("loss", -1.0),
}


@pytest.mark.parametrize("problem", BAD)
def test_a_client_with_a_bad_answer_is_left_out(problem, caplog):
    grid = Nodes(client_app(ONE), THREE, gradients_of(1, BAD[problem]))
    with caplog.at_level(logging.WARNING, "flwr"):
        server = federate(grid, ONE, Rules()).server
    (refused,) = [text for text in caplog.messages if "is refused" in text]
    assert refused.startswith("round 1: the reply of node 101, client 1, is refused: ")
    assert problem in refused
    assert "round 1: 1 of 3 clients did not give a valid answer" in caplog.messages
    with_the_asks_left = ONE.model_copy(update={"algorithm": "fedlc+refit:asks=11"})
    assert_trees_close(server.readout, fit_of(server, with_the_asks_left, [0, 2]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("more", [{}, {"algorithm": "scaffold+refit:asks=4"}, {"model": "cnn:width=4,padding=1"}])
def test_bytes_sent_are_the_arrays_of_all_messages(more, tmp_path):
    run = ONE.model_copy(update={**more, "clients_per_round": 2})
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, Rules(store=str(tmp_path)))
    sent = [0, 0]
    for message in grid.messages:
        arrays = [array for record in message.content.array_records.values() for array in record.values()]
        sent[bool(message.metadata.reply_to_message_id)] += sum(array.numpy().nbytes for array in arrays)
    (record,) = Store(tmp_path).folder(run.hash).records()
    counted = bytes_sent(run, [RoundRecord.stored(record)])
    assert [counted.down, counted.up] == [(down_or_up,) for down_or_up in sent]
    assert record["asked"] == len(asked(grid))


@pytest.mark.parametrize("since", [1, 4, 12])
def test_a_fit_goes_on_without_a_client_that_does_not_answer(since, tmp_path):
    """With as many asks in all."""
    grid = Nodes(client_app(ONE), THREE, gradients_of(1, lost, since))
    server = federate(grid, ONE, Rules(round_timeout=0.5, store=str(tmp_path))).server
    assert asks(grid) == [[0, 1, 2]] * since + [[0, 2]] * (12 - since)
    (record,) = Store(tmp_path).folder(ONE.hash).records()
    assert record["asked"] == len(asked(grid))
    tried = [content["layer"] for content in asked(grid)]
    trained, again = tried[0], tried[3 * since] if since < 12 else tried[-1]
    same = [np.array_equal(trained[name].numpy(), again[name].numpy()) for name in server.readout]
    assert same == [since == 1] * 2
    reached, start = (mean_loss(server, layer, ONE, [0, 2]) for layer in (server.readout, {}))
    assert reached < start
    full = mean_loss(server, fit_of(server, ONE, [0, 2]), ONE, [0, 2])
    assert reached < full + 0.2 * (start - full)


def test_a_fit_ends_although_every_ask_loses_a_client(caplog):
    """It takes as many asks as without a loss, and says that nothing came of them."""
    run = Run(**{**FIELDS, "clients": 6, "partition": "shards:2"}, rounds=1, algorithm="refit:asks=5")
    seen: Counter[int] = Counter()

    def on_its_way(reply):
        """Client 0 loses its first answer, client 1 its second, and so on."""
        if reply.metadata.message_type != ASKS:
            return reply
        client = reply.content["metrics"]["client"]
        seen[client] += 1
        return None if seen[client] == client + 1 else reply

    grid = Nodes(client_app(run), [{"partition-id": client} for client in range(6)], on_its_way)
    with caplog.at_level(logging.INFO, "flwr"):
        server = federate(grid, run, Rules(min_clients=1, round_timeout=0.2)).server
    assert asks(grid) == [list(range(first, 6)) for first in range(5)]
    assert_trees_equal(server.readout, {name: server.params[name] for name in server.readout})
    assert "round 1: the last ask lost a client; the last layer is the best found before it" in caplog.messages
    assert not any("is fitted" in text for text in caplog.messages)


def test_a_client_that_does_not_train_in_a_round_is_asked():
    run = ONE.model_copy(update={"clients_per_round": 1})
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, Rules())
    assert asks(grid)[0] == [0, 1, 2]


def test_too_few_answers_fail_the_run_and_the_next_goes_on(tmp_path):
    rules = Rules(store=str(tmp_path), min_clients=3, round_timeout=0.5)
    grid = Nodes(client_app(RUN), THREE, gradients_of(1, lost, since=14))
    with pytest.raises(
        RuntimeError, match="round 2: 2 clients answered the readout properly, but min-clients requires"
    ):
        federate(grid, RUN, rules)
    folder = Store(tmp_path).folder(RUN.hash)
    kept = load_checkpoint(folder.checkpoint)
    assert kept.round == 1
    assert kept.server.readout
    resumed = federate(Nodes(client_app(RUN), THREE), RUN, rules).server
    straight = federate(Nodes(client_app(RUN), THREE), RUN, Rules()).server
    assert_trees_equal(in_order_of(resumed.params, straight.params), straight.params)
    assert_trees_equal(in_order_of(resumed.readout, straight.readout), straight.readout)
    finished = federate(Nodes(client_app(RUN), []), RUN, rules).server  # nobody is asked
    assert_trees_equal(in_order_of(finished.readout, straight.readout), straight.readout)


def test_a_bad_answer_may_fail_the_run():
    grid = Nodes(client_app(ONE), THREE, gradients_of(1, with_number("loss", -1.0)))
    with pytest.raises(RuntimeError, match=r"node 101, client 1, is refused: loss is -1\.0"):
        federate(grid, ONE, Rules(on_bad_reply="fail"))


def test_if_only_the_nodes_have_data_the_exported_model_is_read_out(tmp_path):
    federation = build_federation(ONE)
    data, nodes, seen = federation.dataset, [], []
    for client, mine in enumerate(federation.indices):
        path = tmp_path / f"{client}.npz"
        x = data.prepare(data.x_train[mine], torch.float32).numpy()
        np.savez(path, x_train=x, y_train=data.y_train[mine].numpy())
        nodes.append({"client-id": client, "data": str(path)})
    shape = "x".join(map(str, data.input_shape))
    own = {"dataset": f"nodes:{shape},10", "partition": "natural", "rounds": 1, "algorithm": ONE.algorithm}
    run = Run(**{**FIELDS, **own})
    rules = Rules(store=str(tmp_path / "runs"), start_timeout=1)
    server = federate(Nodes(client_app(run), nodes), run, rules, evaluate=seen.append).server
    assert_trees_close(server.readout, fit_of(server, ONE, [0, 1, 2]), rtol=1e-3, atol=1e-3)
    assert [each.used for each in seen] == [server.used]
    exported = load_model(run.hash, tmp_path / "runs").state_dict()
    for name, leaf in server.readout.items():
        (kept,) = [there for key, there in exported.items() if key.endswith(name)]
        assert torch.equal(kept, leaf)


def test_features_are_computed_once_for_a_model(monkeypatch):
    count = []
    features = reading.features
    monkeypatch.setattr(reading, "features", lambda *given: (count.append(1), features(*given))[1])
    grid = Nodes(client_app(RUN), THREE)
    kept = federate(grid, RUN, Rules()).server
    assert len(count) == 3 * 2
    monkeypatch.setattr(reading, "MOST_KEPT", 0)
    grid = Nodes(client_app(RUN), THREE)
    assert_trees_equal(federate(grid, RUN, Rules()).server.readout, kept.readout)
    assert len(count) == 3 * 2 + 3 * len(asks(grid))
    kept = [set(context.state.array_records["fedskew-features"]) for context in grid.contexts.values()]
    assert all("features" not in names for names in kept)


def test_only_the_first_ask_of_a_fit_holds_the_model():
    run = RUN.model_copy(update={"model": "cnn:width=4,padding=1", "algorithm": "fedlc+refit:asks=3"})
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, Rules())
    held = [set(content.array_records) for content in asked(grid)]
    assert held == 2 * (3 * [{"params", "buffers", "layer"}] + 6 * [{"layer"}])


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_node_that_has_lost_the_model_is_left_out_of_the_fit(rounds, caplog):
    """It takes part in the next one."""
    run = RUN.model_copy(update={"rounds": rounds})

    def forgetful(reply):
        grid.contexts[101].state = RecordDict()
        return reply

    change = gradients_of(1, forgetful)
    grid = Nodes(client_app(run), THREE, lambda reply: change(reply) if reply.has_content() else reply)
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(grid, run, Rules())
    refused = [text for text in caplog.messages if "is refused" in text]
    assert len(refused) == rounds
    for round, text in enumerate(refused, 1):
        assert f"node 101, client 1, is refused: error 2: this node no longer has the model of round {round}" in text
    assert asks(grid) == rounds * ([[0, 1, 2]] * 2 + [[0, 2]] * 10)


def test_the_gradient_by_the_bias_reveals_label_counts_and_the_message_does_not_hide_it():
    """The warning of the docs: with a layer of zeros, every class gets the same share."""
    run = ONE.model_copy(update={"model": "logistic"})
    grid = Nodes(client_app(run), THREE)
    federate(grid, run, Rules())
    first = next(m for m in grid.messages if m.metadata.message_type == ASKS)
    first.content["layer"] = type(first.content["layer"])(
        {name: Array(np.zeros_like(leaf.numpy())) for name, leaf in first.content["layer"].items()}
    )
    answer = client_app(run)(first, grid.contexts[100]).content
    _, by_bias = (leaf.numpy() for leaf in answer["layer"].values())
    counts = build_federation(run).counts(np.array([0]))[0]
    np.testing.assert_allclose(answer["metrics"]["num-examples"] / 10 - by_bias, counts, atol=1e-2)


@pytest.mark.parametrize("mod", [LocalDpMod(1.0, 0.0, 1.0, 1e-5), fixedclipping_mod, adaptiveclipping_mod])
def test_local_privacy_refuses_it(mod):
    with pytest.raises(RuntimeError, match=r"node 100: .* the readout of fedlc\+refit.* reveal label counts"):
        federate(Nodes(client_app(ONE, mods=[mod]), THREE), ONE, Rules(start_timeout=0.1))


def test_a_private_node_gives_no_gradient_even_if_asked():
    grid = Nodes(client_app(ONE), THREE)
    federate(grid, ONE, Rules())
    ask = next(m for m in grid.messages if m.metadata.message_type == ASKS)
    with pytest.raises(ValueError, match="reveal label counts"):
        client_app(ONE, mods=[fixedclipping_mod])(ask, grid.contexts[100])


def test_central_privacy_refuses_it():
    run = ONE.model_copy(update={"weighting": "uniform"})

    def wrap(strategy):
        return DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 0.1, 3)

    with pytest.raises(ValueError, match=r"central differential privacy .* reveal label counts"):
        federate(Nodes(client_app(run), THREE), run, Rules(), wrap=wrap)


def test_a_node_whose_method_has_no_readout_gives_no_gradient():
    run = ONE.model_copy(update={"algorithm": "fedlc"})
    grid = Nodes(client_app(ONE), THREE)
    federate(grid, ONE, Rules())
    ask = next(m for m in grid.messages if m.metadata.message_type == ASKS).content
    records = {**ask, "config": ConfigRecord({**ask["config"], "run": run.hash})}
    with pytest.raises(ValueError, match="fedlc has no readout, so this node gives no gradients"):
        client_app(run)(Message(RecordDict(records), 100, ASKS), grid.contexts[100])


def test_a_node_is_asked_for_its_own_last_layer_only():
    grid = Nodes(client_app(ONE), THREE)
    federate(grid, ONE, Rules())
    ask = next(m for m in grid.messages if m.metadata.message_type == ASKS)
    for node, problem in ((100, "the server asks for other"), (101, "this node is client 1")):
        records = {**ask.content, "layer": type(ask.content["layer"])({"other": Array(np.zeros(3, np.float32))})}
        with pytest.raises(ValueError, match=problem):
            client_app(ONE)(Message(RecordDict(records), node, ASKS), grid.contexts[node])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"model": "mlp:hidden=8,head=unit"}, r"fedlc\+refit.* cannot fit mlp"),
        ({"algorithm": "fedlc+median+refit", "weighting": "uniform"}, "one client could bypass the aggregate"),
    ],
)
@pytest.mark.parametrize("data", [{}, {"dataset": "nodes:64,10", "partition": "natural"}])
def test_what_cannot_be_fitted_is_refused_before_the_first_round(more, problem, data):
    run = Run(**{**FIELDS, "rounds": 1, "algorithm": "fedlc+refit", **data, **more})
    grid = Nodes(client_app(run), THREE)
    with pytest.raises(ValueError, match=problem):
        federate(grid, run, Rules())
    assert grid.messages == []


def test_a_strategy_alone_does_not_drop_a_readout():
    federation = build_federation(RUN)
    with pytest.raises(
        ValueError, match=r"fedlc\+refit:asks=12 has a readout, .* allowed: fedskew\.flower\.server_app"
    ):
        LabelSkew(Plan.of(RUN, federation.dataset))
    LabelSkew(Plan.of(RUN.replace(algorithm="fedlc"), federation.dataset))
