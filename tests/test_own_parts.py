"""A loss or a model of the user's own that is not made for all clients at once: what is said, and what is left."""

import pytest

from fedskew import Store
from fedskew.cli import main

OWN = """
import torch.nn.functional as F
from torch import nn


def each():
    return lambda logits, labels, counts: F.cross_entropy(logits, labels, reduction="none")


def any_shape():
    return lambda logits, labels, counts: F.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")


def mean():
    return lambda logits, labels, counts: each()(logits, labels, counts).mean()


class Recurrent(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.rows, self.last = nn.LSTM(8, 4, batch_first=True), nn.Linear(4, num_classes)

    def forward(self, x):
        return self.last(self.rows(x.reshape(-1, 8, 8))[0][:, -1])


def recurrent(num_classes):
    return Recurrent(num_classes)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`fedskew run` in a folder with own.py: exit code, what it complains of, the runs it leaves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSKEW_RUNS", raising=False)
    (tmp_path / "own.py").write_text(OWN)

    def called(*options):
        with pytest.raises(SystemExit) as done:
            main(["run", "--clients", "3", "--rounds", "1", "--quiet", *options])
        left = [path.name for path in (tmp_path / "runs").iterdir()] if (tmp_path / "runs").exists() else []
        return done.value.code, capsys.readouterr().err, left

    return called


@pytest.mark.parametrize(
    ("options", "part", "problem"),
    [
        (["--algorithm", "own.py:each"], "loss", "gives different numbers to clients together"),
        (["--algorithm", "own.py:each", "--batch-size", "10"], "loss", "gives different numbers to clients together"),
        (
            ["--algorithm", "own.py:each", "--model", "own.py:recurrent"],
            "loss and model",
            "cannot take several clients",
        ),
        (["--model", "own.py:recurrent"], "model", "Batching rule not implemented for aten::lstm.input"),
    ],
)
def test_a_part_for_one_client_is_left_to_the_serial_engine(run, options, part, problem):
    """`auto` takes it; an engine that was asked for and cannot run it is refused, and nothing is left behind."""
    code, said, left = run(*options, "--engine", "stacked")
    assert code == 2
    (line,) = said.splitlines()
    assert line.startswith(f"fedskew: engine is 'stacked', but the {part} of this run ")
    assert problem in line
    assert line.endswith("; engine=serial runs it")
    assert left == []
    code, said, (kept,) = run(*options)
    assert (code, said) == (0, "")
    (session,) = Store("runs").folder(kept).sessions()
    assert session["engine"] == "serial"
    assert problem in session["engine_reason"]


@pytest.mark.parametrize("engine", ["stacked", "serial"])
def test_a_loss_that_is_a_mean_is_named(run, engine):
    code, said, left = run("--algorithm", "own.py:mean", "--engine", engine, "--batch-size", "10")
    assert code == 1
    assert "the loss has shape [] for labels of shape [" in said
    assert "allowed: one value per example" in said
    assert left == []


def test_what_the_docs_say_of_cross_entropy(run):
    assert run("--algorithm", "own.py:any_shape")[:2] == (0, "")


def test_parts_of_this_package_are_not_blamed(run, monkeypatch):
    def broken(*_):
        raise RuntimeError("a broken part")

    monkeypatch.setattr("fedskew.core.round.Recipe.move", broken)
    code, said, left = run()
    assert code == 1
    assert said.rstrip().endswith("a broken part")
    assert left == []
