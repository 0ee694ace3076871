"""`fedskew sweep` as a user calls it."""

import json

import pytest

from fedskew.cli.values import requested
from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

SWEEP = [
    "sweep",
    "--dataset",
    "digits",
    "--clients",
    "3",
    "--rounds",
    "2",
    "--model",
    "logistic",
    "--algorithm",
    "fedlc",
]


def test_a_table_a_figure_and_a_document(capsys, tmp_path):
    arguments = [*SWEEP, "--tau", "0.5,5", "--lr", "0.01,0.1", "--seeds", "2"]
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    for word in ("fedlc on digits", "2 seeds", "reference", "not decided: two seeds", "test set", "fedskew tune"):
        assert word in out
    made = {path.name for path in (tmp_path / "sweep").iterdir()}
    assert made == {"table.md", "table.tex", "table.csv", "sweep.png", "sweep.svg"}
    document = json.loads(call(capsys, *arguments, "--json")[1])
    assert set(document) == {"swept", "measure", "reference", "rows", "files"}
    assert document["swept"] == {"tau": [0.5, 5.0], "lr": [0.01, 0.1]}
    assert document["rows"][document["reference"]]["values"] == {"tau": 5.0, "lr": 0.01}
    assert len(list((tmp_path / "runs").iterdir())) == 8


def test_arguments_may_be_written_in_three_ways(capsys):
    found = [
        json.loads(call(capsys, *SWEEP, *written, "--json")[1])["rows"]
        for written in (["--tau", "1,2"], ["--tau=1", "--tau", "2"], ["--set", "fedlc.tau=1,2"])
    ]
    assert [[row["runs"] for row in rows] for rows in found] == [[row["runs"] for row in found[0]]] * 3


def test_a_list_in_the_run_file_is_several_values(capsys, tmp_path):
    (tmp_path / "run.toml").write_text('lr = [0.01, 0.1]\nalgorithm = "fedavg"\nmomentum = 0.5\n')
    document = json.loads(call(capsys, *SWEEP, "run.toml", "--tau", "1", "--json")[1])
    assert document["swept"] == {"lr": [0.01, 0.1]}
    assert all(row["algorithm"].startswith("fedlc:tau=1") for row in document["rows"])


@pytest.mark.parametrize(
    ("name", "texts", "values"),
    [
        ("lr", ["0.1,0.2"], ["0.1", "0.2"]),
        ("lr", ["0.1", "0.2, 0.3"], ["0.1", "0.2", "0.3"]),
        ("partition", ["dirichlet:0.1,balance=off,iid,shards:2"], ["dirichlet:0.1,balance=off", "iid", "shards:2"]),
        ("partition", ["dirichlet:0.1,dirichlet:1"], ["dirichlet:0.1", "dirichlet:1"]),
        ("model", ["mlp:hidden=8,depth=2", "cnn"], ["mlp:hidden=8,depth=2", "cnn"]),
        ("lr_schedule", ["constant,step:5,0.5"], ["constant", "step:5,0.5"]),
        ("dataset", ["synthetic:1,1,digits"], ["synthetic:1,1", "digits"]),
    ],
)
def test_what_a_comma_divides(name, texts, values):
    assert requested({name: texts}, None, None).values == {name: values}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["several values", "--tau"]),
        (["--tau", "1"], ["several values"]),
        (["--tuu", "1"], ["tuu", "did you mean tau"]),
        (["--tua", "1,2"], ["tua", "did you mean tau"]),
        (["--tau"], ["--tau", "no values"]),
        (["--tau", "1,,2"], ["empty value"]),
        (["--set", "tau"], ["NAME=VALUES"]),
        (["--seed", "1,2"], ["seed", "--seeds"]),
        (["a.toml", "b.toml", "--tau", "1,2"], ["b.toml", "too many"]),
        (["--tau", "1,x"], ["tau is 'x'"]),
        (["--tau", "1,2", "--seeds", "0"], ["seeds is 0"]),
    ],
)
def test_a_wrong_request_is_explained_and_nothing_is_begun(capsys, tmp_path, arguments, words):
    code, out, err = call(capsys, *SWEEP, *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []
