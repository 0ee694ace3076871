"""What the one who runs a federation is told about the clients that did not count."""

import logging

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from tests.flower.in_process import RUN, THREE, Nodes
from tests.flower.replies import with_number
from tests.flower.test_strategy import answers_of

REFIT = RUN.model_copy(update={"algorithm": "fedlc+refit", "rounds": 1})


@pytest.mark.parametrize("run", [RUN.model_copy(update={"rounds": 1}), REFIT], ids=["train", "readout"])
def test_a_client_without_a_reply_is_named(run, caplog):
    record = "layer" if run is REFIT else "params"
    lost = answers_of(1, 1, lambda reply: None if record in reply.content else reply)
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(Nodes(client_app(run), THREE, lost), run, Rules(round_timeout=0.5))
    said = "round 1: node 101, client 1: no reply in time; round-timeout is 0.5 s"
    assert caplog.messages.count(said) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda reply: None, "client 1: no reply in time; round-timeout is 0.5 s"),
        (with_number("steps", -3), "client 1: steps is -3; allowed: integers of at least 1"),
    ],
    ids=["no reply", "refused"],
)
def test_a_run_that_fails_says_what_was_wrong(change, problem):
    grid = Nodes(client_app(RUN), THREE, answers_of(1, 1, change))
    with pytest.raises(RuntimeError) as failed:
        federate(grid, RUN, Rules(min_clients=3, round_timeout=0.5))
    assert str(failed.value) == f"round 1: 2 clients answered properly, but min-clients requires 3; {problem}"


def test_faults_of_an_earlier_round_are_not_told_again():
    run = RUN.model_copy(update={"rounds": 3})
    first, second = (answers_of(client, round, with_number("steps", -3)) for client, round in ((0, 1), (1, 2)))
    silent = answers_of(2, 2, lambda reply: None)
    grid = Nodes(client_app(run), THREE, lambda reply: silent(second(first(reply))))
    with pytest.raises(RuntimeError, match=r"round 2: .*; client 2: no reply.*; client 1: steps is -3") as failed:
        federate(grid, run, Rules(round_timeout=0.5))
    assert "client 0" not in str(failed.value)


def test_without_a_store_nothing_is_said_to_continue(tmp_path):
    for rules, said in ((Rules(round_timeout=0.5), False), (Rules(round_timeout=0.5, store=str(tmp_path)), True)):
        grid = Nodes(client_app(RUN), THREE, lambda reply: None if _round_of(reply) == 2 else reply)
        with pytest.raises(RuntimeError, match="round 2: 0 clients answered properly") as failed:
            federate(grid, RUN, rules)
        assert ("the next `flwr run` continues after round 1" in str(failed.value)) == said


def _round_of(reply):
    return reply.content.metric_records.get("metrics", {}).get("round")


@pytest.mark.parametrize("algorithm", ["scaffold", "fedlc"])
def test_a_folder_for_states_that_cannot_be_written_is_noticed_when_a_node_joins(algorithm, tmp_path, caplog):
    """Only if the method has a state, and before the client has trained."""
    (tmp_path / "file").touch()
    run = RUN.model_copy(update={"algorithm": algorithm, "rounds": 1})
    grid = Nodes(client_app(run), [*THREE[:2], {**THREE[2], "state-dir": str(tmp_path / "file" / "states")}])
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(grid, run, Rules(start_timeout=0.5))
    told = [text for text in caplog.messages if f"state-dir is '{tmp_path / 'file' / 'states'}', where nothing" in text]
    assert (len(federated.update.loss), bool(told)) == ((2, True) if algorithm == "scaffold" else (3, False))
    assert not list(tmp_path.glob("states*"))


def test_a_node_with_another_run_is_told_what_must_agree(monkeypatch):
    run = RUN.model_copy(update={"seed": 1})
    monkeypatch.setattr("fedskew.__version__", "9.9.9")
    with pytest.raises(RuntimeError, match=r"version of fedskew \(here: 9\.9\.9\) and the same content in the files"):
        federate(Nodes(client_app(run), THREE), RUN, Rules(start_timeout=0.5))
