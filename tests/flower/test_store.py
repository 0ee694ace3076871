"""A federation's store: what is finished, and with which data."""

import logging

import pytest

from fedskew import Run, Store
from fedskew.runs.sealed import seal
from fedskew.runs.store import StoreError
from tests.helpers import assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app, server
from fedskew.flower.server import federate
from tests.flower.in_process import Nodes, in_order_of

RUN = Run(dataset="digits", partition="dirichlet:0.3", clients=2, rounds=2, lr=0.1, batch_size=64, engine="serial")
TWO = [{"partition-id": client} for client in range(2)]


def test_a_federation_whose_last_model_was_not_kept_goes_on(tmp_path, monkeypatch):
    save = server.save_checkpoint

    def full(folder, round, *state):
        if round == RUN.rounds:
            raise OSError(28, "No space left on device", str(folder.checkpoint))
        save(folder, round, *state)

    rules = Rules(store=str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(server, "save_checkpoint", full)
        with pytest.raises(OSError, match="No space"):
            federate(Nodes(client_app(RUN), TWO), RUN, rules)
    folder = Store(tmp_path).folder(RUN.hash)
    assert (len(folder.records()), folder.saved()) == (2, 1)
    resumed = federate(Nodes(client_app(RUN), TWO), RUN, rules)
    assert (len(folder.records()), folder.saved()) == (2, 2)
    straight = federate(Nodes(client_app(RUN), TWO), RUN, Rules())
    assert_trees_equal(in_order_of(resumed.server.params, straight.server.params), straight.server.params)


def test_the_log_says_whether_a_run_starts_or_continues(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "flwr"):
        for rounds in (1, 2):
            run = RUN.model_copy(update={"rounds": rounds})
            federate(Nodes(client_app(run), TWO), run, Rules(store=str(tmp_path)))
    said = [line for line in caplog.messages if line.startswith(f"run {RUN.hash} ")]
    kept = f", stored in {tmp_path / RUN.hash}"
    assert said == [f"run {RUN.hash} starts{kept}", f"run {RUN.hash} continues after round 1{kept}"]


def test_a_federation_does_not_go_on_with_another_test_set(tmp_path):
    rules = Rules(store=str(tmp_path))
    federate(Nodes(client_app(RUN), TWO), RUN, rules)
    folder = Store(tmp_path).folder(RUN.hash)
    (session,) = folder.sessions()
    (folder.path / "sessions.jsonl").write_bytes(seal({**session, "data": "0" * 32}) + b"\n")
    with pytest.raises(StoreError, match=f"digest {'0' * 32}, .* has {session['data']}"):
        federate(Nodes(client_app(RUN), TWO), RUN.model_copy(update={"rounds": 3}), rules)
