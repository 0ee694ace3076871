"""A federation's store: what is finished, and with which data."""

import logging
import runpy

import pytest

from fedskew import Run, Store
from fedskew.runs.sealed import seal
from fedskew.runs.store import StoreError
from tests.helpers import assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import Context, RecordDict

from fedskew.flower import Rules, client_app, server
from fedskew.flower.rules import app_digest
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


BEFORE = """
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from fedskew.flower import Evaluation, client_app, server_app

def evaluate(server):
    return Evaluation(0.5, 0.5, 1.0, [])

def wrap(strategy):
    return DifferentialPrivacyServerSideFixedClipping(strategy, 0.1, 1.0, 2)

"""


def test_a_session_says_what_the_app_makes_of_the_run(tmp_path, caplog):
    """The next one warns if that has changed, and only then."""
    app, fields = tmp_path / "app", {**RUN.given, "weighting": "uniform"}
    folder = Store(tmp_path / "runs").folder(Run(**fields).hash)
    app.mkdir()

    def train(rounds, code):
        (app / "federation.py").write_text(BEFORE + code)
        made = runpy.run_path(str(app / "federation.py"))
        given = {key.replace("_", "-"): value for key, value in {**fields, "rounds": rounds}.items()}
        context = Context(1, 1, {}, RecordDict(), {**given, "store": str(tmp_path / "runs")})
        caplog.clear()
        made["server"](Nodes(client_app(Run(**{**fields, "rounds": rounds})), TWO), context)
        return [text for text in caplog.messages if text.startswith("the rounds so far are of another app")]

    plain = "client = client_app()\nserver = server_app()"
    own = plain.replace("server_app()", "server_app(evaluate=evaluate)")
    private = "client = client_app(mods=[LocalDpMod(1.0, 0.0, 1.0, 1e-5)])\nserver = server_app(wrap=wrap)"
    assert train(1, plain) == train(2, plain) == []
    (said,) = train(3, own)
    first, _, third = folder.sessions()
    assert said.endswith(f"app {first['app']} -> {third['app']}, measured on the test set -> by evaluate")
    assert third["changed"] == {"app": [first["app"], third["app"]], "measured": ["on the test set", "by evaluate"]}
    (said,) = train(4, private)
    last = folder.sessions()[-1]
    assert (last["mods"], last["wrapped"], last["measured"]) == (
        "LocalDpMod",
        "DifferentialPrivacyServerSideFixedClipping",
        "on the test set",
    )
    assert "mods none -> LocalDpMod" in said


def test_the_app_of_a_run_is_all_of_its_python_files(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "federation.py").write_text("1")
    (tmp_path / "parts" / "more.py").write_text("2")
    alone = app_digest(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    whole = app_digest(tmp_path)
    (tmp_path / "parts" / "more.py").write_text("3")
    assert len({alone, whole, app_digest(tmp_path)}) == 3
    (tmp_path / "pyproject.toml").unlink()
    assert app_digest(tmp_path) == alone  # a folder that is no app may hold anything
