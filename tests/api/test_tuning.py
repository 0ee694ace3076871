"""Knobs chosen on held-out examples, from Python."""

import csv
import sys
from types import SimpleNamespace

import pytest

from fedskew import Compared, Run, Tuned, cross_entropy, fedlc, tune
from tests.cli.calling import call

FIELDS = {"dataset": "digits", "model": "logistic", "clients": 3, "rounds": 2}


def doubled(logits, labels, counts):
    return 2 * cross_entropy(logits, labels, counts)


BOTH = ("fedlc", doubled)


@pytest.fixture(scope="module")
def tuned():
    return tune(Run(**FIELDS), ["fedavg", fedlc()], budget=3, seeds=2)


def test_the_chosen_settings_are_compared_under_fresh_seeds(tuned):
    assert isinstance(tuned, Tuned)
    assert isinstance(tuned, Compared)
    assert list(tuned) == list(tuned.chosen) == ["fedavg", "fedlc"]
    assert {name: set(values) for name, values in tuned.chosen.items()} == {"fedavg": {"lr"}, "fedlc": {"tau", "lr"}}
    runs = [one.run for one in tuned["fedlc"]]
    assert [(run.seed, run.validation, run.lr) for run in runs] == [
        (1, 0.0, tuned.chosen["fedlc"]["lr"]),
        (2, 0.0, tuned.chosen["fedlc"]["lr"]),
    ]
    assert tuned.at_an_edge == {"fedavg": [], "fedlc": []}


def test_tries_and_tables(tuned, monkeypatch):
    assert [each["method"] for each in tuned.tries] == ["fedavg"] * 3 + ["fedlc"] * 3
    assert [each["values"] for each in tuned.tries if each["chosen"]] == list(tuned.chosen.values())
    best = max(tuned.tries[:3], key=lambda each: each["held_out"])
    assert best["chosen"]
    assert len(list(csv.DictReader(tuned.tries_table("csv").splitlines()))) == 6
    assert tuned.tries_table().count("chosen") == 2
    with pytest.raises(ValueError, match="style is 'latex'; allowed: markdown, csv"):
        tuned.tries_table("latex")
    assert "not decided: two seeds" in tuned.table()
    assert [line.get_label() for line in tuned.plot().axes[0].lines] == ["fedavg", "fedlc"]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert [(row["method"], row["seed"]) for row in tuned.to_pandas()][:2] == [("fedavg", 1), ("fedavg", 2)]


def test_another_baseline():
    against = {
        baseline: tune(Run(**FIELDS), ["fedlc", doubled], budget=1, seeds=1, baseline=baseline) for baseline in BOTH
    }
    assert [[row["against_baseline"] is None for row in found.rows()] for found in against.values()] == [
        [True, False],
        [False, True],
    ]
    with pytest.raises(ValueError, match="baseline is 'fedavg'; allowed: one of the tuned methods, fedlc; doubled"):
        tune(Run(**FIELDS), ["fedlc", doubled], baseline="fedavg")


def test_it_is_what_the_command_line_does(tuned, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [word for name, value in FIELDS.items() for word in (f"--{name}", str(value))]
    call(capsys, "tune", *options, "--algorithm", "fedavg,fedlc", "--budget", "3", "--seeds", "2", "--quiet")
    assert tuned.tries_table() == (tmp_path / "tuning" / "tries.md").read_text()
    assert tuned.table() == (tmp_path / "tuning" / "table.md").read_text()


@pytest.mark.parametrize("base", [{**FIELDS, "lr": 0.1}, Run(**FIELDS, lr=0.1), Run(**FIELDS).replace(lr=0.1)])
def test_what_is_set_is_not_tuned_and_what_is_listed_is_all_there_is(base, tmp_path):
    found = tune(base, ["fedavg", "fedlc", doubled], {"tau": [1, 2]}, seeds=1, store=tmp_path)
    assert [each["values"] for each in found.tries] == [{}, {"tau": 1.0}, {"tau": 2.0}, {}]
    assert {one.run.lr for runs in found.runs.values() for one in runs} == {0.1}


def test_a_run_that_was_changed_elsewhere_still_leaves_its_rate_open(tmp_path):
    found = tune(Run(**FIELDS).replace(rounds=1), ["fedavg"], budget=2, seeds=1, store=tmp_path)
    assert len({each["values"]["lr"] for each in found.tries}) == 2


def test_a_store_is_not_needed_for_halving(tmp_path):
    how = {"values": {"lr": [0.001, 0.01, 0.1, 0.5]}, "halving": True, "seeds": 1}
    found = tune(FIELDS, ["fedavg"], **how)
    assert found.tries == tune(FIELDS, ["fedavg"], **how, store=tmp_path).tries


@pytest.mark.parametrize(
    ("algorithms", "more", "words"),
    [
        ([], {}, "allowed: a list of methods"),
        ("fedavg", {}, "algorithms is 'fedavg'; allowed: a list of methods"),
        (fedlc(), {}, "allowed: a list of methods"),
        (["fedavg"], {"values": {"lr": "0.1,0.3"}}, "lr is '0.1,0.3'; allowed: a list of values"),
        (["fedavg"], {"values": {"lr": 0.1}}, "lr is 0.1; allowed: a list of values"),
        (["fedavg"], {"budget": 0}, "budget is 0"),
        (["fedavg"], {"search": "best"}, "search is 'best'; allowed: random, grid"),
        (["fedavg"], {"values": {"partition": ["iid"]}}, "partition cannot be tuned"),
    ],
)
def test_a_wrong_request_is_explained(algorithms, more, words):
    with pytest.raises(ValueError, match=words):
        tune(FIELDS, algorithms, **more)
