"""What a server accepts, what it refuses and how it goes on."""

import logging

import numpy as np
import pytest

from fedskew import Store, simulate
from fedskew.runs.store import StoreError
from tests.cli.calling import call
from tests.flower.replies import renamed, with_a_record, with_number
from tests.helpers import assert_trees_close, assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import Array, Error, Message, RecordDict

from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from fedskew.flower.strategy import LabelSkew
from fedskew.simulation.plan import Plan, build_federation
from tests.flower.in_process import RUN, THREE, Nodes, in_order_of

SCAFFOLD = RUN.model_copy(update={"algorithm": "fedlc+scaffold", "rounds": 4})


def answers_of(client, round, change):
    """Change one answer of a client on its way."""

    def on_its_way(reply):
        metrics = reply.content.metric_records.get("metrics", {}) if reply.has_content() else {}
        return change(reply) if (metrics.get("client"), metrics.get("round")) == (client, round) else reply

    return on_its_way


def with_array(make, record="params"):
    def change(reply):
        name = next(iter(reply.content[record]))
        reply.content[record][name] = Array(make(reply.content[record][name].numpy()))
        return reply

    return change


def without(record, key=None):
    def change(reply):
        if key is None:
            del reply.content[record]
        else:
            del reply.content[record][key]
        return reply

    return change


def unreadable(reply):
    name = next(iter(reply.content["params"]))
    old = reply.content["params"][name]
    reply.content["params"][name] = Array(dtype=old.dtype, shape=old.shape, stype=old.stype, data=b"nothing")
    return reply


BAD = {
    "not finite": with_array(lambda x: np.full_like(x, np.nan)),
    "has shape": with_array(lambda x: x[:-1]),
    "float64 for": with_array(lambda x: x.astype(np.float64)),
    "params has no": renamed("params"),
    "records are": with_a_record,
    "message": without("message"),
    "numbers are": without("metrics", "loss"),
    "cannot be read": unreadable,
    "steps is -3": with_number("steps", -3),
    "steps is 1;": with_number("steps", 1),
    "num-examples is 0": with_number("num-examples", 0),
    "num-examples is 12.5": with_number("num-examples", 12.5),
    "client is 2; expected: 1": with_number("client", 2),
    "round is 7; expected: 1": with_number("round", 7),
    "loss is nan": with_number("loss", float("nan")),
    "error 2: no memory": lambda reply: Message(Error(2, "no memory"), reply_to=_asked(reply)),
}


def _asked(reply):
    """A message that the reply would be one to."""
    sent = Message(RecordDict(), reply.metadata.src_node_id, "train")
    sent.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return sent


@pytest.mark.parametrize("problem", BAD)
def test_a_bad_reply_is_refused_and_the_round_goes_on(problem, caplog):
    grid = Nodes(client_app(SCAFFOLD), THREE, answers_of(1, 1, BAD[problem]))
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(grid, SCAFFOLD.model_copy(update={"rounds": 1}), Rules())
    assert len(federated.update.loss) == 2
    assert federated.absorbed == {0: 1, 2: 1}
    (refused,) = [text for text in caplog.messages if "is refused" in text]
    assert refused.startswith("round 1: the reply of node 101, client 1, is refused: ")
    assert problem in refused


def test_a_reply_of_a_node_that_was_not_asked_is_refused(caplog):
    Nodes(client_app(RUN), THREE)  # so that messages can be made
    strategy = LabelSkew(Plan.of(RUN, build_federation(RUN).dataset))
    reply = Message(RecordDict(), reply_to=Message(RecordDict(), 999, "evaluate"))
    with caplog.at_level(logging.WARNING, "flwr"):
        assert strategy.aggregate_evaluate(1, [reply]) is None
    (said,) = [text for text in caplog.messages if "is refused" in text]
    assert said == "round 1: the reply of node 999, client unknown, is refused: this node was not asked"


@pytest.mark.parametrize("key", ["client", "round", "absorbed"])
def test_a_call_that_lacks_something_is_refused_by_its_node(key, caplog):
    grid, push = Nodes(client_app(SCAFFOLD), THREE), Nodes._push

    def lacking(message):
        if message.metadata.message_type == "train" and message.content["config"]["client"] == 1:
            del message.content["config"][key]
        return push(grid, message)

    grid._push = lacking
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(grid, SCAFFOLD.model_copy(update={"rounds": 1}), Rules())
    (said,) = [text for text in caplog.messages if "is refused" in text]
    assert f"no {key}" in said


def test_a_bad_reply_may_fail_the_run():
    grid = Nodes(client_app(RUN), THREE, answers_of(1, 1, with_number("steps", -3)))
    with pytest.raises(RuntimeError, match="node 101, client 1, is refused: steps is -3"):
        federate(grid, RUN, Rules(on_bad_reply="fail"))


def test_too_few_answers_fail_the_run():
    grid = Nodes(client_app(RUN), THREE, answers_of(1, 1, lambda reply: None))
    with pytest.raises(RuntimeError, match="2 clients answered properly, but min-clients requires 3"):
        federate(grid, RUN, Rules(min_clients=3, round_timeout=0.5))


@pytest.mark.parametrize(
    ("sampled", "least", "needed"), [(3, 0, 2), (4, 0, 2), (1, 0, 1), (0, 0, 0), (5, 2, 2), (2, 9, 2)]
)
def test_how_many_answers_a_round_needs(sampled, least, needed):
    assert Rules(min_clients=least).needed(sampled) == needed


def test_what_is_lost_is_as_if_the_client_had_not_answered():
    """A client whose answer never came goes on from the state that its server knows of."""
    lost = Nodes(client_app(SCAFFOLD), THREE, answers_of(1, 2, lambda reply: None))
    other = federate(lost, SCAFFOLD, Rules(round_timeout=0.5))
    absent = Nodes(client_app(SCAFFOLD), THREE)
    push = absent._push

    def never_asked(message):
        config = message.content.config_records["config"]
        if (config.get("client"), config.get("round")) == (1, 2):
            return "nobody"
        return push(message)

    absent._push = never_asked
    assert_trees_equal(federate(absent, SCAFFOLD, Rules(round_timeout=0.5)).server.params, other.server.params)


def test_states_live_on_the_nodes():
    grid = Nodes(client_app(SCAFFOLD), THREE)
    federate(grid, SCAFFOLD, Rules())
    for context in grid.contexts.values():
        assert context.state.config_records["fedskew-rounds"]["rounds"] == [3, 4]
    plain = Nodes(client_app(RUN), THREE)
    federate(plain, RUN, Rules())
    assert all(not context.state for context in plain.contexts.values())


@pytest.mark.parametrize("kept", [True, False])
def test_a_new_flower_run_goes_on_from_the_store(kept, tmp_path, caplog):
    """With a folder on each node, to the same bits; without, the clients' states begin at zero, and the log says so."""
    nodes = [{**config, **({"state-dir": str(tmp_path / "states")} if kept else {})} for config in THREE]
    rules = Rules(store=str(tmp_path / "runs"), round_timeout=0.5)
    broken = Nodes(client_app(SCAFFOLD), nodes, answers_of(1, 3, lambda reply: None))
    with pytest.raises(RuntimeError, match="the next `flwr run` continues after round 2"):
        federate(broken, SCAFFOLD, rules.model_copy(update={"min_clients": 3}))
    folder = Store(tmp_path / "runs").folder(SCAFFOLD.hash)
    assert [record["round"] for record in folder.records()] == [1, 2]
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Nodes(client_app(SCAFFOLD), nodes), SCAFFOLD, rules)
    *_, expected = simulate(SCAFFOLD)
    assert [record["round"] for record in folder.records()] == [1, 2, 3, 4]
    assert [session["from_round"] for session in folder.sessions()] == [0, 2]
    zero = [text for text in caplog.messages if "it starts anew" in text]
    noticed = [f"node {100 + k}, client {k}, has lost its state of round 2 and starts anew" for k in range(3)]
    told = [text for text in caplog.messages if text.startswith("round 3: ") and "has lost its state" in text]
    if kept:
        assert zero == told == []
        params = in_order_of(federated.server.params, expected.server.params)
        assert_trees_close(params, expected.server.params, rtol=1e-6, atol=1e-6)
        assert folder.records()[-1]["accuracy"] == expected.accuracy
    else:
        assert len(zero) == len(told) == 3
        assert all(said in text for said, text in zip(noticed, told, strict=True))
    again = federate(Nodes(client_app(SCAFFOLD), []), SCAFFOLD, rules)  # finished: nobody is asked
    assert_trees_equal(in_order_of(again.server.params, federated.server.params), federated.server.params)


def test_a_damaged_state_is_named(tmp_path, caplog):
    (tmp_path / f"{SCAFFOLD.hash}-client1.safetensors").write_bytes(b"half")
    nodes = [{**config, "state-dir": str(tmp_path)} for config in THREE]
    with caplog.at_level(logging.WARNING, "flwr"):
        rules = Rules(start_timeout=0.1)
        federate(Nodes(client_app(SCAFFOLD), nodes), SCAFFOLD.model_copy(update={"rounds": 1}), rules)
    assert any("client1.safetensors is damaged" in text for text in caplog.messages)


def test_the_commands_of_the_store_know_a_federation(tmp_path, capsys):
    rules = Rules(store=str(tmp_path / "runs"))
    federate(Nodes(client_app(RUN), THREE), RUN, rules)
    for command in (
        ["runs", "list", "--runs", rules.store],
        ["runs", "show", RUN.hash, "--runs", rules.store],
        ["report", "-o", str(tmp_path / "report.html"), "--runs", rules.store],
        ["export", RUN.hash, str(tmp_path / "model.safetensors"), "--runs", rules.store],
    ):
        code, _, err = call(capsys, *command)
        assert code == 0, err


def test_a_federation_whose_states_are_on_the_nodes_is_not_diagnosed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedskew.report.diagnostic_figures.FIGURES", {})
    for run in (SCAFFOLD.model_copy(update={"rounds": 1}), RUN):
        federate(Nodes(client_app(run), THREE), run, Rules(store=str(tmp_path / "runs")))
    answers = {}
    for run in (SCAFFOLD, RUN):
        code, _, err = call(capsys, "diagnose", run.hash)
        answers[run.algorithm] = code, err.splitlines()
    code, (said,) = answers[SCAFFOLD.algorithm]
    assert code != 0
    assert "client states are on the nodes" in said
    assert answers[RUN.algorithm] == (0, [])


def test_a_node_with_another_run_is_refused():
    other = RUN.model_copy(update={"lr": 0.2})
    with pytest.raises(
        RuntimeError, match=f"0 clients have joined.*node 100: client 0: this node has run {other.hash}"
    ):
        federate(Nodes(client_app(other), THREE), RUN, Rules(start_timeout=0.5))


@pytest.mark.parametrize("config", [{}, {"partition-id": 3}, {"client-id": "one"}, {"partition-id": True}])
def test_a_node_that_is_no_client_is_refused(config, caplog):
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Nodes(client_app(RUN), [*THREE[:2], config]), RUN, Rules(start_timeout=0.5))
    assert len(federated.update.loss) == 2
    assert any("node 102 is refused: node-config: client-id is" in text for text in caplog.messages)


def test_of_two_nodes_that_are_one_client_the_first_has_it(caplog):
    grid = Nodes(client_app(RUN), [*THREE, {"partition-id": 1}])
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(grid, RUN, Rules())
    assert any("node 103 is refused while another node is client 1" in text for text in caplog.messages)
    sent = [message.metadata for message in grid.messages if message.metadata.reply_to_message_id == ""]
    assert {about.dst_node_id for about in sent if about.message_type == "train"} == {100, 101, 102}


def test_a_late_node_takes_part_from_the_next_round_on():
    run = RUN.model_copy(update={"rounds": 3})
    grid = Nodes(client_app(run), THREE)
    late = grid.contexts.pop(102)
    seen = []

    def joins(reply):
        if reply.content.metric_records:
            seen.append((reply.content["metrics"]["round"], reply.content["metrics"]["client"]))
            grid.contexts[102] = late
        return reply

    grid.change = joins
    federate(grid, run, Rules(start_timeout=0.5))
    assert sorted(seen) == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_a_node_that_leaves_and_comes_back_is_told_of(caplog):
    run = RUN.model_copy(update={"rounds": 5})
    grid = Nodes(client_app(run), THREE)
    gone = {}

    def moves(reply):
        metrics = reply.content.metric_records.get("metrics", {})
        if (metrics.get("client"), metrics.get("round")) == (0, 1):
            gone[102] = grid.contexts.pop(102)
        if (metrics.get("client"), metrics.get("round")) == (0, 2):
            grid.contexts.update(gone)
        return reply

    grid.change = moves
    push = grid._push
    grid._push = lambda message: push(message) if message.metadata.dst_node_id in grid.contexts else None
    with caplog.at_level(logging.INFO, "flwr"):
        federated = federate(grid, run, Rules())
    assert federated.absorbed == {0: 5, 1: 5, 2: 5}
    said = [text for text in caplog.messages if "node 102" in text]
    joined = "node 102 has joined: client 2 with 482 examples"
    left = "node 102, client 2, has left; started again with its key, it can join now"
    assert said == [joined, "round 1: node 102, client 2: it left before its call", left, joined]


def test_a_server_that_waits_says_for_how_many(caplog):
    grid = Nodes(client_app(RUN), THREE)
    third = grid.contexts.pop(102)
    calls = iter(range(100))
    nodes = grid.get_node_ids

    def joining():
        if next(calls) == 4:
            grid.contexts[102] = third
        return nodes()

    grid.get_node_ids = joining
    with caplog.at_level(logging.INFO, "flwr"):
        federate(grid, RUN, Rules(start_timeout=20))
    said = [text for text in caplog.messages if "waiting" in text]
    assert said == [f"{there} of 3 clients have joined, waiting up to 20 s" for there in (0, 2)]


def test_a_client_that_raises_is_named(caplog):
    def breaks(message, context, call_next):
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("the disk is full")
        return call_next(message, context)

    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Nodes(client_app(RUN, mods=[breaks]), THREE), RUN, Rules())
    assert federated.absorbed == {0: 2, 1: 2}
    assert any("node 102, client 2, is refused: error 2: the disk is full" in text for text in caplog.messages)


def scaled(by):
    return with_array(lambda array: array * np.float32(by))


def test_a_round_that_would_ruin_the_server_is_dropped(tmp_path):
    run, rules = RUN.model_copy(update={"algorithm": "fedopt"}), Rules(store=str(tmp_path), max_norm="off")
    with pytest.raises(RuntimeError, match="round 2: the server's optimizer are not finite"):
        federate(Nodes(client_app(run), THREE, answers_of(1, 2, scaled(1e25))), run, rules)
    assert len(Store(tmp_path).folder(run.hash).records()) == 1
    federated = federate(Nodes(client_app(run), THREE), run, rules)
    *_, expected = simulate(run)
    params = in_order_of(federated.server.params, expected.server.params)
    assert_trees_close(params, expected.server.params, rtol=1e-6, atol=1e-6)


def test_a_store_holds_a_run_simulated_or_federated(tmp_path):
    list(simulate(RUN, store=Store(tmp_path / "a")))
    with pytest.raises(StoreError, match=f"{RUN.hash} .* was simulated; train it in another store"):
        federate(Nodes(client_app(RUN), THREE), RUN, Rules(store=str(tmp_path / "a")))
    federate(Nodes(client_app(RUN), THREE), RUN, Rules(store=str(tmp_path / "b")))
    with pytest.raises(StoreError, match=f"{RUN.hash} .* is a federation's; simulate it in another store"):
        next(simulate(RUN, store=Store(tmp_path / "b")))


def test_a_store_is_an_absolute_path():
    with pytest.raises(ValueError, match="absolute path"):
        Rules(store="runs")


def test_a_refused_node_is_asked_again():
    run = RUN.model_copy(update={"rounds": 4})
    grid = Nodes(client_app(run), [*THREE[:2], {"partition-id": 7}])
    federated = federate(repairing(grid), run, Rules(start_timeout=0.1))
    assert federated.absorbed[2] == 4


def repairing(grid):
    """The third node gets its right number once the first round is done."""

    def change(reply):
        metrics = reply.content.metric_records.get("metrics", {}) if reply.has_content() else {}
        if metrics.get("round") == 1:
            grid.contexts[102].node_config["partition-id"] = 2
        return reply

    grid.change = change
    return grid


def test_a_reply_that_cannot_be_read_costs_no_other(caplog):
    class Broken(Nodes):
        def pull_messages(self, message_ids):
            for reply in (found := super().pull_messages(message_ids)):
                metrics = reply.content.metric_records.get("metrics", {})
                if (metrics.get("client"), metrics.get("round")) == (1, 1):
                    raise TypeError("'str' object cannot be interpreted as an integer")
            return found

    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Broken(client_app(RUN), THREE), RUN, Rules())
    assert federated.absorbed == {0: 2, 1: 2, 2: 2}
    assert any("node 101, client 1, is refused" in text and "cannot be read" in text for text in caplog.messages)
