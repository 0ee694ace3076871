"""The progress of calls from Python: none unless it is asked for, and then that of the command line."""

import sys
from types import SimpleNamespace

import pytest
import rich.console

from fedskew import Run, compare, progress, simulate, sweep, tune

RUN = Run(clients=3, rounds=2, batch_size=64, model="logistic", lr=0.1)
SMALL = {"clients": 3, "rounds": 2, "batch_size": 64, "model": "logistic", "lr": 0.1}
CALLS = {
    "simulate": lambda **how: simulate(RUN).result(**how),
    "compare": lambda **how: compare(RUN, ["fedavg", "fedlc"], **how),
    "sweep": lambda **how: sweep(RUN.replace(algorithm="fedlc"), {"tau": [1, 2]}, **how),
    "tune": lambda **how: tune(SMALL, ["fedlc"], {"tau": [1, 2]}, budget=2, seeds=1, **how),
}


@pytest.fixture(autouse=True)
def a_line_for_every_round(monkeypatch):
    monkeypatch.setattr(progress, "_EVERY", 0.0)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_silent_unless_asked(capsys, name):
    CALLS[name]()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("simulate", ["fedavg, round 1", "fedavg, round 2"]),
        ("compare", [f"{method}, round {round}" for method in ("fedavg", "fedlc") for round in (1, 2)]),
        ("sweep", [f"tau={tau}, round {round}" for tau in (1, 2) for round in (1, 2)]),
        ("tune", [*["fedlc, held out, round 1", "fedlc, held out, round 2"] * 2, "fedlc, round 1", "fedlc, round 2"]),
    ],
)
def test_progress_counts_every_round(capsys, name, said):
    CALLS[name](progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(", accuracy")[0] for line in err.splitlines()] == said


def test_while_choosing_only_held_out_accuracy_is_seen(capsys):
    tuned = tune(SMALL, ["fedlc"], {"tau": [1]}, budget=1, seeds=1, progress=True)
    shown = [line.partition("accuracy ")[2].partition(" %")[0] for line in capsys.readouterr().err.splitlines()]
    last, test = tuned.runs["fedlc"][0].records[-1].accuracy, tuned.runs["fedlc"][0].run.replace(seed=0, validation=0.1)
    of_the_try = simulate(test.replace(algorithm="fedlc:tau=1")).result().records[-1]
    assert shown[1] == f"{100 * of_the_try.validation_accuracy:.2f}" != f"{100 * of_the_try.accuracy:.2f}"
    assert shown[-1] == f"{100 * last:.2f}"


def test_rounds_that_were_asked_for_before_are_not_counted(capsys):
    begun = simulate(RUN)
    next(begun)
    begun.result(progress=True)
    assert "; 1 of 1 rounds" in capsys.readouterr().err


def test_a_terminal_shows_the_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    CALLS["compare"](progress=True)
    err = capsys.readouterr().err
    assert "\x1b[" in err
    assert "4/4" in err
    assert "; 4 of 4 rounds" not in err


@pytest.mark.parametrize("widgets", [False, True])
def test_a_notebook_draws_a_bar_if_it_can(monkeypatch, widgets):
    monkeypatch.setattr(rich.console, "Console", lambda **_: SimpleNamespace(is_jupyter=True))
    monkeypatch.setattr(progress, "find_spec", lambda name: SimpleNamespace(name=name) if widgets else None)
    assert progress._draws() is widgets
