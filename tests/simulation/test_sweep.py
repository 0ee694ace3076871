"""Settings of a sweep: all combinations, each once, with the right reference; nothing is computed twice."""

import re

import numpy as np
import pytest

from fedskew import Run, Store
from fedskew.report.swept import SweepTable, stored_runs
from fedskew.runs.summary import setting_text
from fedskew.simulation.session import simulate_groups
from fedskew.simulation.sweep import Sweep, run_at, value_at

DIGITS = {"dataset": "digits", "model": "logistic", "clients": 3, "rounds": 2, "algorithm": "fedlc"}


def settings(values, seeds=1, **fields):
    sweep = Sweep.of({**DIGITS, **fields}, values, seeds)
    return [setting.name for setting in sweep.settings], sweep


def test_all_combinations_in_order():
    names, sweep = settings({"tau": ["1", "5"], "lr": ["0.01", "0.1"]}, seeds=2)
    assert names == ["tau=1, lr=0.01", "tau=1, lr=0.1", "tau=5, lr=0.01", "tau=5, lr=0.1"]
    last = sweep.settings[-1]
    assert [(run.short_algorithm, run.lr, run.seed) for run in last.runs] == [("fedlc", 0.1, 0), ("fedlc", 0.1, 1)]
    assert [(name, len(runs)) for name, runs in sweep.groups] == [(name, 2) for name in names]
    assert names[sweep.reference] == "tau=5, lr=0.01"


def test_the_first_value_stands_for_a_default_that_is_not_there():
    names, sweep = settings({"tau": [1, 5], "lr": [0.3, 0.1]})
    assert names[sweep.reference] == "tau=5, lr=0.3"


def test_a_method_without_the_argument_is_there_once():
    names, sweep = settings({"algorithm": ["fedlc", "fedavg"], "tau": [1, 2]})
    assert names == ["fedlc, tau=1", "fedlc, tau=2", "fedavg"]
    assert sweep.reference == 2


@pytest.mark.parametrize("splits", [["natural", "iid"], ["iid", "natural"]])
def test_other_splits_have_as_many_clients_as_the_data(splits, tmp_path):
    x, y, file = np.zeros((30, 4), np.float32), np.arange(30) % 3, tmp_path / "own.npz"
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y, client=np.arange(30) % 5)
    fields = {"dataset": f"npz:{file}", "model": "mlp"}
    sweep = Sweep.of(fields, {"partition": splits})
    assert [setting.runs[0].clients for setting in sweep.settings] == [5, 5]
    sweep = Sweep.of(fields, {"partition": ["natural"], "clients": [3, 5]})
    assert [setting.runs[0].clients for setting in sweep.settings] == [3, 5]


def test_fields_that_hang_on_others_follow_them():
    _, sweep = settings({"clients": [3, 50]})
    assert [setting.runs[0].clients_per_round for setting in sweep.settings] == [3, 50]
    assert [setting.values for setting in sweep.settings] == [{"clients": 3}, {"clients": 50}]
    whole = Sweep.of(Run(**DIGITS), {"clients": [3, 50]})
    assert whole.settings == sweep.settings


def test_specs_are_shown_as_people_write_them():
    names, _ = settings({"partition": ["dirichlet:0.1", "dirichlet:b=0.1,balance=off", "dirichlet:0.1,balance=on"]})
    assert names == ["partition=dirichlet:0.1", "partition=dirichlet:0.1,balance=off"]


def test_a_run_at_a_setting():
    run = run_at({"algorithm": "fedlc+fedprox"}, {"fedprox.mu": "0.5", "tau": 2, "momentum": 0.9})
    assert run == Run(algorithm="fedlc:tau=2+fedprox:mu=0.5", momentum=0.9)
    assert [value_at(run, name) for name in ("tau", "mu", "momentum", "rho")] == [2, 0.5, 0.9, None]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tua": [1]}, "unknown argument of fedlc or field of a run 'tua': did you mean tau"),
        ({"seed": [1, 2]}, "seed cannot have several values"),
        ({"engine": ["serial", "stacked"]}, "engine cannot have several values: it decides no result"),
        ({"tau": []}, "tau has no values"),
        ({"tau": ["a"]}, "tau is 'a'"),
        ({"lr": [-1]}, "greater than 0"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_any_work(values, words):
    with pytest.raises(ValueError, match=words):
        Sweep.of(DIGITS, values)


def test_results_are_kept_and_read_again(tmp_path, monkeypatch):
    store = Store(tmp_path)
    sweep = Sweep.of(Run(**DIGITS, lr=0.1), {"tau": [1, 2], "rounds": [1, 2]}, seeds=2)

    def records():
        found = simulate_groups(sweep.groups, store)
        return [(name, run.seed, record.round, record.accuracy) for name, run, record in found]

    first = records()
    assert len(first) == 2 * 2 * (1 + 2)
    swept = SweepTable.of(sweep.settings, stored_runs(store, sweep.settings), sweep.reference, sweep.title)
    assert swept.title == "fedlc on digits dirichlet:0.1, 3 clients"
    monkeypatch.setattr("fedskew.simulation.session.advance", None)
    assert sorted(records()) == sorted(first)
    ends = {(name, seed): accuracy for name, seed, _, accuracy in first}
    for row in swept.rows:
        name = setting_text(row["values"])
        assert row["accuracy"]["each"] == [ends[name, 0], ends[name, 1]]
    assert setting_text(swept.rows[swept.reference]["values"]) == "tau=1, rounds=2"
    assert swept.rows[swept.reference]["against_reference"] is None
    assert swept.rows[0]["against_reference"]["seeds"] == 2


def test_a_swept_argument_is_in_its_column_and_not_in_the_name_of_the_method():
    sweep = Sweep.of({"dataset": "digits"}, {"algorithm": ["fedavg", "fedlc:tau=2"], "tau": [1, 3]})
    assert [setting.name for setting in sweep.settings] == ["fedavg", "fedlc, tau=1", "fedlc, tau=3"]


@pytest.mark.parametrize("values", [[None, 1.0], ["none", "1"]])
def test_no_limit_is_a_value_of_its_own(values):
    sweep = Sweep.of({"dataset": "digits"}, {"lr": [0.1, 0.2], "grad_clip": values})
    names = ["lr=0.1, grad_clip=none", "lr=0.1, grad_clip=1", "lr=0.2, grad_clip=none", "lr=0.2, grad_clip=1"]
    assert [setting.name for setting in sweep.settings] == names
    assert [setting.runs[0].grad_clip for setting in sweep.settings] == [None, 1.0, None, 1.0]
    assert sweep.reference == 0


@pytest.mark.parametrize("seeds", [[1, 2], "3", 2.0, 0, 1001])
def test_seeds_are_a_number(seeds):
    with pytest.raises(ValueError, match=re.escape(f"seeds is {seeds}; allowed: how many seeds, 1 to 1,000")):
        Sweep.of({"dataset": "digits"}, {"lr": [0.1, 0.2]}, seeds=seeds)
