"""A run, its table, figure, model and traffic, from Python."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure

from fedskew import Run, Simulated, Store, compare, simulate
from fedskew.core import tree
from fedskew.data import load_dataset
from fedskew.simulation.plan import Plan

FIELDS = {"clients": 4, "rounds": 3, "lr": 0.1, "batch_size": 32, "partition": "dirichlet:0.3"}
RUN = Run(**FIELDS)


@pytest.fixture(scope="module")
def done():
    return simulate(RUN).result()


def test_it_iterates_as_before_and_remembers(done):
    found = simulate(RUN)
    assert isinstance(found, Simulated)
    rounds = list(found)
    assert [record.server is not None for record in rounds] == [True] * 3
    assert [record.as_dict()["loss"] for record in found.records] == [record.loss for record in rounds]
    assert [record.server for record in found.records] == [None] * 3
    assert list(found) == []
    assert found.result() is found
    assert found.accuracy == rounds[-1].accuracy == done.accuracy
    assert found.summary["rounds"] == 3
    assert "3 of 3 rounds" in repr(found)


def test_what_it_says_is_about_the_rounds_so_far():
    found = simulate(RUN)
    for what in (lambda: found.accuracy, lambda: found.model, found.table, found.plot):
        with pytest.raises(ValueError, match="no round has been simulated yet"):
            what()
    first = next(found)
    assert (found.accuracy, len(found.bytes_sent.up)) == (first.accuracy, 1)
    found.close()
    assert list(found) == []
    assert found.accuracy == first.accuracy
    with pytest.raises(ValueError, match=r"stopped after round 1 of 3; call simulate again"):
        found.result()


def test_rounds_to(done):
    accuracies = [record.accuracy for record in done.records]
    assert done.rounds_to(accuracies[0]) == 1
    assert done.rounds_to(1.0) is None
    best = max(accuracies)
    assert done.rounds_to(best) == accuracies.index(best) + 1
    with pytest.raises(ValueError, match="accuracy is 60; allowed: above 0, at most 1"):
        done.rounds_to(60)


def measured(model, run):
    data = load_dataset(run.dataset, run.seed, run.clients)
    with torch.no_grad():
        return (model(data.x_test).argmax(-1) == data.y_test).double().mean().item()


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_model_takes_stored_inputs(precision):
    found = simulate(Run(**FIELDS, precision=precision)).result()
    model = found.model
    assert not model.training
    assert measured(model, RUN) == found.accuracy
    assert next(model.parameters()).dtype == (torch.float32 if precision == "fp32" else torch.float64)
    assert (model.classes, model.input_shape, model.round) == (tuple("0123456789"), (1, 8, 8), 3)
    data = load_dataset("digits", 0, 4)
    names = model.predict(data.x_test[:5])
    assert names == [model.classes[i] for i in model(data.x_test[:5]).argmax(-1)]
    with pytest.raises(ValueError, match=r"inputs have the shape \[5, 64\]; allowed: \[B, 1, 8, 8\]"):
        model(data.x_test[:5].reshape(5, 64))


def test_the_model_of_a_stored_run(tmp_path, done):
    for _ in range(2):
        found = simulate(RUN, store=tmp_path).result()
        assert measured(found.model, RUN) == done.accuracy
    simulate(Run(**{**FIELDS, "rounds": 5}), store=Store(tmp_path)).result()
    with pytest.raises(ValueError, match="keeps the model of round 5"):
        _ = simulate(RUN, store=tmp_path).result().model


def test_a_diverged_run_has_no_model():
    found = simulate(Run(**{**FIELDS, "lr": 1e30})).result()
    with pytest.raises(ValueError, match="has diverged"):
        _ = found.model


@pytest.mark.parametrize(
    ("algorithm", "down", "up"),
    [("fedavg", 1, 1), ("fedlc", 1, 1), ("scaffold", 2, 2), ("fedcm", 2, 1), ("feddyn", 2, 1)],
)
def test_bytes_sent_are_those_of_the_trees_that_travel(algorithm, down, up):
    found = simulate(Run(**FIELDS, algorithm=algorithm, clients_per_round=2)).result()
    model = tree.nbytes([dict(found.model.module.state_dict())])
    assert found.bytes_sent.down == (2 * down * model,) * 3
    assert found.bytes_sent.up == (2 * up * model,) * 3
    assert found.bytes_sent.total == 6 * (down + up) * model


def test_clients_that_do_not_answer_send_nothing():
    found = simulate(Run(**FIELDS, dropout_rate=0.5)).result()
    assert [record.clients for record in found.records] != [4, 4, 4]
    one = found.bytes_sent.down[0] // 4
    assert found.bytes_sent.up == tuple(record.clients * one for record in found.records)


def test_bytes_sent_count_what_fits_send():
    """Once for a fit the model to each client, and for each ask and client the layer down and its gradient up."""
    fields = {**FIELDS, "rounds": 12, "eval_every": 12, "clients_per_round": 2}
    (plain,), (read,) = compare(Run(**fields), ["fedlc", "fedlc+refit:asks=5"]).runs.values()
    model = tree.nbytes([dict(read.model.module.state_dict())])
    layer = 4 * (10 * 64 + 10)
    fitted = (0, 0, *[1] * 10)  # only the last ten rounds are measured
    sent = read.bytes_sent
    assert sent.down == tuple(2 * model + each * 4 * (model + 5 * layer) for each in fitted)
    assert sent.up == tuple(2 * model + each * 4 * 5 * layer for each in fitted)
    assert sent.fits == tuple(each * 4 * (model + 2 * 5 * layer) for each in fitted)
    assert sent.total == plain.bytes_sent.total + sum(sent.fits)
    assert sent.with_last_fit == plain.bytes_sent.total + sent.fits[-1]
    assert plain.bytes_sent.with_last_fit == plain.bytes_sent.total
    assert plain.bytes_sent.fits == (0,) * 12


def test_bytes_sent_are_those_of_a_real_federation():
    pytest.importorskip("flwr", reason="needs the extra: pip install 'fedskew[flower]'")
    from fedskew.flower.messages import server_records

    run = Run(**FIELDS, algorithm="scaffold")
    sent = server_records(Plan.of(run, load_dataset("digits", 0, 4)).start("cpu"))
    size = sum(array.numpy().nbytes for record in sent.values() for array in record.values())
    found = simulate(run)
    next(found)
    assert found.bytes_sent.down == (4 * size,)


def test_tables(done):
    assert done.table().splitlines()[2].startswith("| fedavg | ")
    assert f"{100 * done.accuracy:.2f}" in done.table()
    assert done.table("csv").splitlines()[1].startswith("fedavg,1,0,")
    assert re.search(r"\\toprule\nmethod & accuracy, .*\\midrule\nfedavg & ", done.table("latex"), re.S)
    with pytest.raises(ValueError, match="style is 'html'; allowed: markdown, latex, csv"):
        done.table("html")


def test_figures(done):
    figure = done.plot()
    assert isinstance(figure, Figure)
    (line,) = figure.axes[0].lines
    assert list(line.get_ydata()) == [100 * record.accuracy for record in done.records]
    axes = Figure().subplots()
    assert done.plot(axes, "balanced_accuracy") is axes.figure
    assert axes.get_ylabel() == "balanced accuracy on the test set (%)"
    with pytest.raises(ValueError, match="no round has a value for 'acuracy'"):
        done.plot(measure="acuracy")


def test_pandas_is_asked_for_when_it_is_needed(done, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas"):
        done.to_pandas()


class Frame:
    """What a DataFrame is asked for here."""

    def __init__(self, rows):
        self.rows = rows

    def set_index(self, name):
        return {row[name]: row for row in self.rows}


def test_to_pandas_has_a_row_for_each_round(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=Frame))
    found = simulate(RUN, [lambda seen: {"cohort": len(seen.cohort.clients)}]).result()
    frame = found.to_pandas()
    assert list(frame) == [1, 2, 3]
    assert frame[3]["accuracy"] == found.accuracy
    assert frame[3]["cohort"] == 4


def test_a_program_that_leaves_its_loop_ends_quietly_with_its_last_round_kept(tmp_path):
    code = (
        "from fedskew import Run, simulate\n"
        "left = simulate(Run(dataset='digits', model='logistic', clients=3, rounds=9), store='runs')\n"
        "for record in left:\n    if record.round == 3: break\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (folder,) = Store(tmp_path / "runs")
    assert folder.saved() == 3
