"""A sweep, from Python."""

import sys
from types import SimpleNamespace

import pytest

from fedskew import Algorithm, Run, Swept, cross_entropy, fedlc, sweep
from tests.cli.calling import call

FIELDS = {"dataset": "digits", "model": "logistic", "clients": 3, "rounds": 2, "algorithm": "fedlc", "batch_size": 64}
VALUES = {"tau": [1, 5], "lr": [0.1, 0.2]}


@pytest.fixture(scope="module")
def swept():
    return sweep(Run(**FIELDS), VALUES, seeds=2)


def test_settings_and_seeds(swept):
    assert isinstance(swept, Swept)
    assert list(swept) == ["tau=1, lr=0.1", "tau=1, lr=0.2", "tau=5, lr=0.1", "tau=5, lr=0.2"]
    found = [(one.run.seed, one.run.lr, one.run.short_algorithm) for one in swept["tau=1, lr=0.2"]]
    assert found == [(0, 0.2, "fedlc:tau=1"), (1, 0.2, "fedlc:tau=1")]
    assert swept["tau=1, lr=0.1"][0].model.round == 2
    with pytest.raises(KeyError, match="tau=3 is not among these runs; allowed: tau=1"):
        swept["tau=3"]


def test_the_tables_are_those_of_the_command_line(swept, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [word for name, value in FIELDS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    call(capsys, "sweep", *options, "--tau", "1,5", "--lr", "0.1,0.2", "--seeds", "2", "--quiet")
    assert str(swept) == swept.table() == (tmp_path / "sweep" / "table.md").read_text()
    assert swept.table("csv") == (tmp_path / "sweep" / "table.csv").read_text()
    assert swept.table("latex").count("\\\\") == 5
    with pytest.raises(ValueError, match="style is 'html'; allowed: markdown, latex, csv"):
        swept.table("html")


def test_rows_frames_and_figures(swept, monkeypatch):
    assert [row["values"] for row in swept.rows()][1] == {"tau": 1.0, "lr": 0.2}
    assert swept.rows()[2]["against_reference"] is None  # tau is the default, lr the first value
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = swept.to_pandas()
    assert [(row["tau"], row["lr"], row["seed"]) for row in rows][:3] == [(1, 0.1, 0), (1, 0.1, 1), (1, 0.2, 0)]
    assert rows[0]["accuracy"] == swept["tau=1, lr=0.1"][0].accuracy
    figure = swept.plot()
    assert figure.get_suptitle().startswith("fedlc on digits")
    axes = figure.axes[0]
    assert swept.plot(axes) is figure
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"lr=0.1", "lr=0.2"}


def halved(factor: float = 0.5) -> Algorithm:
    return Algorithm("halved", loss=lambda logits, labels, counts: factor * cross_entropy(logits, labels, counts))


def test_arguments_are_those_of_the_function_that_makes_a_method():
    assert list(sweep(Run(**{**FIELDS, "algorithm": halved}), {"factor": [0.5, 2]})) == ["factor=0.5", "factor=2"]
    with pytest.raises(ValueError, match="an algorithm that was made has no arguments, the function that makes it has"):
        sweep(Run(**{**FIELDS, "algorithm": halved()}), {"factor": [0.5, 2]})


def test_fields_instead_of_a_run_and_objects_among_the_values(tmp_path):
    plain = {name: value for name, value in FIELDS.items() if name != "algorithm"}
    found = sweep(plain, {"algorithm": ["fedavg", fedlc(tau=1)]}, store=tmp_path)
    assert list(found) == ["fedavg", "fedlc:tau=1"]
    assert found.rows()[1]["against_reference"]["verdict"] == "not decided"


@pytest.mark.parametrize(
    ("run", "values", "kind", "words"),
    [
        (FIELDS, {}, ValueError, "sweep needs values"),
        (FIELDS, {"tau": "1,2"}, ValueError, "tau is '1,2'; allowed: a list of values"),
        (FIELDS, {"tau": 1}, ValueError, "tau is 1; allowed: a list of values"),
        (FIELDS, {"algorithm": "fedavg,fedlc"}, ValueError, "algorithm is 'fedavg,fedlc'; allowed: a list of values"),
        (FIELDS, {"tua": [1]}, ValueError, "did you mean tau"),
        ("digits", {"tau": [1]}, TypeError, "'digits' is not a run"),
        (FIELDS, {"tau": [1]}, ValueError, "seeds is 0"),
    ],
)
def test_a_wrong_request_is_explained(run, values, kind, words):
    with pytest.raises(kind, match=words):
        sweep(run, values, seeds=0 if "seeds" in words else 1)
