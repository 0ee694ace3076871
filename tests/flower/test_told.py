"""What the one who runs a federation is told about the clients that did not count."""

import logging

import numpy as np
import pytest

from fedskew import Run
from fedskew.algorithms import Algorithm

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app
from fedskew.flower.post import question
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


def test_a_node_that_is_refused_says_why_in_one_line(tmp_path, caplog):
    """Without a traceback, and the server names its client."""
    grid = Nodes(client_app(RUN), [*THREE[:2], {"client-id": 2, "data": str(tmp_path / "mine.npz")}])
    with caplog.at_level(logging.ERROR, "flwr"):
        told = grid.app(question(RUN.hash, 102), grid.contexts[102])
    (said,) = caplog.records
    assert said.message.startswith("cannot join the run: client 2: node-config: data is ")
    assert (said.levelname, said.exc_info) == ("ERROR", None)
    assert told.error.reason.startswith("client 2: node-config: data is ")
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(grid, RUN, Rules(start_timeout=0.1))
    assert any(text.startswith("node 102 is refused: client 2: node-config: data is ") for text in caplog.messages)


def test_a_node_with_another_file_is_told_which(tmp_path):
    x, y = np.zeros((6, 4), np.float32), np.arange(6) % 3
    runs = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        np.savez(tmp_path / place / "mine.npz", x_train=x + len(place), y_train=y, x_test=x, y_test=y)
        data = {"dataset": f"npz:{tmp_path / place / 'mine.npz'}", "partition": "iid", "model": "mlp:hidden=8"}
        runs.append(Run(**data, clients=3, rounds=1, algorithm=f"{__file__}:own"))
    with pytest.raises(RuntimeError, match=r"that the run names; other content here: dataset npz:mine\.npz; node 101"):
        federate(Nodes(client_app(runs[0]), THREE), runs[1], Rules(start_timeout=0.1))


def own():
    return Algorithm(name="own")


def test_a_node_with_another_run_is_told_what_must_agree(monkeypatch):
    run = RUN.model_copy(update={"seed": 1})
    monkeypatch.setattr("fedskew.__version__", "9.9.9")
    with pytest.raises(RuntimeError, match=r"version of fedskew \(here: 9\.9\.9\) and the same content in the files"):
        federate(Nodes(client_app(run), THREE), RUN, Rules(start_timeout=0.5))
