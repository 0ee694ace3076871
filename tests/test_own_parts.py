"""A loss or a model of the user's own that is not made for all clients at once: what is said, and what is left."""

import pytest

from fedskew import Run, Store, simulate
from tests.cli.calling import call

OWN = """
import torch.nn.functional as F
from torch import nn


def each():
    return lambda logits, labels, counts: F.cross_entropy(logits, labels, reduction="none")


def any_shape():
    return lambda logits, labels, counts: F.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")


def mean():
    return lambda logits, labels, counts: F.cross_entropy(logits, labels)


def of_classes():
    return lambda logits, labels, counts: logits.mean(-2)


def itself(logits, labels, counts):
    return F.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")


def seen(view):
    return itself(view.outputs.logits, view.labels, view.counts)


def near(logits, targets, counts):
    return itself(logits, targets, counts)


def probabilities(logits, labels, counts):
    return -logits.clamp(min=1e-9).log().gather(-1, labels.unsqueeze(-1)).squeeze(-1)


class Squashed(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)).softmax(-1)


def ends_in_softmax(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes), nn.Softmax(-1))


def squashed(num_classes):
    return Squashed(64, num_classes)


def ends_in_log_softmax(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes), nn.LogSoftmax(-1))


def plain(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))


def number():
    return lambda logits, labels, counts: F.cross_entropy(logits, labels).item()


def dropping(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, num_classes))


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
        code, _, err = call(capsys, "run", "--clients", "3", "--rounds", "1", "--quiet", *options)
        left = [path.name for path in (tmp_path / "runs").iterdir()] if (tmp_path / "runs").exists() else []
        return code, err, left

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


@pytest.mark.parametrize("engine", ["auto", "stacked", "threaded", "serial"])
@pytest.mark.parametrize("model", ["mlp", "own.py:dropping"])
def test_a_loss_that_is_a_mean_is_refused_before_the_first_round(run, engine, model):
    code, said, left = run("--algorithm", "own.py:mean", "--engine", engine, "--model", model)
    assert code == 2
    assert said == (
        "fedskew: the loss has shape [] for labels of shape [20]; allowed: one value per example, no mean "
        "(reduction='none')\n"
    )
    assert left == []


def test_a_loss_with_a_value_per_class_is_refused_before_the_first_round(run):
    code, said, _ = run("--algorithm", "own.py:of_classes")
    assert code == 2
    assert said.startswith("fedskew: the loss has shape [10] for labels of shape [20]; allowed")


def test_a_loss_that_is_a_number_is_refused(run):
    code, said, _ = run("--algorithm", "own.py:number")
    assert (code, said) == (2, "fedskew: the loss returned a float; allowed: a tensor with one value per example\n")


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


def test_a_function_of_logits_labels_and_counts_is_itself_the_loss(run):
    assert run("--algorithm", "own.py:itself", "--engine", "stacked")[:2] == (0, "")
    assert run("--algorithm", "own.py:seen+scaffold", "--engine", "stacked")[:2] == (0, "")
    factory, itself = (Run(algorithm=f"own.py:{name}", clients=3, rounds=1) for name in ("any_shape", "itself"))
    first, second = (next(iter(simulate(each))) for each in (factory, itself))
    assert first.loss == second.loss


def test_a_function_of_other_names_is_a_factory(run):
    code, said, _ = run("--algorithm", "own.py:near")
    assert code == 2
    assert said == (
        "fedskew: 'own.py:near' needs logits; arguments: logits, targets, counts; a function of exactly "
        "(logits, labels, counts) or (view) is itself the algorithm\n"
    )


@pytest.mark.filterwarnings("always:.*returns probabilities")
@pytest.mark.parametrize("model", ["ends_in_softmax", "squashed"])
def test_a_model_that_ends_in_a_softmax_is_noted(run, model):
    """Not if the loss is the user's own too: it may want probabilities."""
    code, said, _ = run("--model", f"own.py:{model}")
    assert code == 0
    assert said == (
        f"fedskew: note: own.py:{model} returns probabilities; our losses take logits and apply a softmax themselves, "
        "so leave it out of the model\n"
    )
    assert run("--model", f"own.py:{model}", "--algorithm", "own.py:probabilities")[:2] == (0, "")


@pytest.mark.filterwarnings("always:.*returns probabilities")
def test_a_note_about_many_runs_is_printed_once(run, capsys):
    options = ["--model", "own.py:squashed", "--clients", "3", "--rounds", "1", "--algorithm=fedavg,fedlc"]
    assert call(capsys, "compare", *options)[2].count("returns probabilities") == 1


@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc"])
def test_a_log_softmax_changes_nothing(run, algorithm):
    assert run("--model", "own.py:ends_in_log_softmax")[:2] == (0, "")
    given = {"clients": 3, "rounds": 2, "lr": 0.1, "precision": "fp64", "algorithm": algorithm}
    ends = [list(simulate(Run(**given, model=f"own.py:{name}")))[-1] for name in ("plain", "ends_in_log_softmax")]
    assert ends[0].loss == pytest.approx(ends[1].loss, rel=1e-9)
