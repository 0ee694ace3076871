import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedskew import Run, Store, simulate
from fedskew.cli.diagnose import _mended
from fedskew.report import diagnostic_figures as figures
from fedskew.report.style import RC
from fedskew.runs.sealed import seal
from fedskew.runs.store import Folder
from tests.cli.calling import call

RUN = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 4, "lr": 0.1, "batch_size": 16, "rounds": 3}
KINDS = "Test accuracy by kind of class before and after a client's local update"
FIGURES = ("before_after", "deviation_bound", "reliability", "confusion", "classifier_norms", "features")


@pytest.fixture(autouse=True)
def small_figures(in_a_folder_of_its_own, monkeypatch):
    monkeypatch.setitem(RC, "figure.dpi", 30)


@pytest.fixture
def _undrawn(monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {})


def trained(**changes):
    run = Run(**{**RUN, **changes})
    list(simulate(run, store=Store("runs")))
    return run.hash


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def drawn_before(path, document):
    return [path.with_suffix(end) for end in (".png", ".svg")]


def test_tables_and_files_of_a_run(capsys):
    hash = trained(model="mlp")
    folder = Path("runs") / hash
    before = contents(folder)
    short = call(capsys, "diagnose", hash[:6])[1]
    assert re.findall(r"(.*)\nlocal update", short) == [KINDS]
    assert "calibration error" in short
    assert short.endswith("`--all` also prints drift and the deviation bound (theorem 1)\n")
    code, out, err = call(capsys, "diagnose", hash[:6], "--all")
    assert (code, err) == (0, "")
    assert "--all" not in out
    for word in ("majority", "minority", "missing", "aggregated", "diversity", "above bound %", "calibration error"):
        assert word in out
    titles = [KINDS, "Drift", "Deviation bound (theorem 1)"]
    assert [line.partition(":")[0] for line in re.findall(r"(.*)\nlocal update", out)] == titles
    assert re.search(r"^accuracy [\d.]+ %; it would be [\d.]+ % with the last layer fitted to all clients'", out, re.M)
    made = {path.name for path in (Path("diagnosis") / hash[:8]).iterdir()}
    assert made == {"diagnosis.json", *(f"{name}.{end}" for name in FIGURES for end in ("png", "svg"))}
    after = contents(folder)
    del after["diagnosis.json"]
    assert after == before
    document = json.loads((Path("diagnosis") / hash[:8] / "diagnosis.json").read_text())
    assert Store("runs").folder(hash).diagnosis() == document
    each = document["at_home"]["global"]
    assert re.search(rf"^the global model +{100 * sum(each) / 4:.2f} +{100 * min(each):.2f} *$", out, re.M)
    assert "trained by the client alone" not in out


@pytest.mark.parametrize(
    ("mended", "said"),
    [
        ({"norms": None, "head": None, "both": None}, "accuracy 50.00 %"),
        (
            {"norms": 0.6, "head": 0.7, "both": 0.8},
            "accuracy 50.00 %; it would be 60.00 % with batch norm's statistics, 70.00 % with the last layer, "
            "80.00 % with both fitted to all clients' training examples",
        ),
    ],
)
def test_what_mending_would_give(mended, said):
    assert _mended({"as_is": 0.5, **mended}) == said


@pytest.mark.usefixtures("_undrawn")
def test_a_folder_with_the_diagnosis_of_another_run(capsys):
    first, second = trained(), trained(algorithm="fedlc")
    assert call(capsys, "diagnose", first, "--out", "here")[2] == ""
    assert call(capsys, "diagnose", first, "--out", "here")[2] == ""
    assert f"here holds the diagnosis of run {first}, which this one replaces" in call(
        capsys, "diagnose", second, "--out", "here"
    )[2].replace("\n", " ")


@pytest.mark.usefixtures("_undrawn")
def test_a_store_that_cannot_be_written_loses_no_diagnosis(capsys, monkeypatch):
    def refuse(folder, document):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Folder, "write_diagnosis", refuse)
    hash = trained()
    code, out, err = call(capsys, "diagnose", hash)
    assert code == 0
    assert "Test accuracy by kind of class" in out
    assert f"cannot write to runs/{hash}: Permission denied; `fedskew report` will not show this diagnosis" in err
    assert Path("diagnosis", hash[:8], "diagnosis.json").exists()


@pytest.mark.usefixtures("_undrawn")
def test_an_output_folder_that_cannot_be_written_loses_no_table(capsys, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    hash = trained()
    monkeypatch.setattr(Path, "mkdir", refuse)
    code, out, err = call(capsys, "diagnose", hash, "--out", "taken/here")
    assert code == 1
    assert "Test accuracy by kind of class" in out
    assert "taken" in err


def test_one_json_document(capsys, monkeypatch):
    hash = trained(algorithm="fedlc:tau=2")
    code, out, _ = call(capsys, "diagnose", hash, "--json", "--out", "there", "--clients", "2")
    assert code == 0
    found = json.loads(out)
    assert set(found) == {
        "run_hash", "title", "dataset", "algorithm", "local_epochs", "seed", "round", "classes", "class_names",
        "methods", "at_home", "calibration", "repairs", "forgetting", "files",
    }  # fmt: skip
    assert list(found["methods"]) == ["fedlc:tau=2", "fedavg"]
    for method in found["methods"].values():
        assert set(method) == {"class_accuracy", "deviation", "margins", "drift", "features"}
        assert len(method["class_accuracy"]["clients"]) == 2
        assert len(method["drift"]["norm"]) == 4
    assert found["round"] == 3
    records = Store("runs").folder(hash).records()
    assert found["methods"]["fedavg"]["class_accuracy"]["before"] == records[-1]["per_class_accuracy"]
    assert found["files"][0] == "there/diagnosis.json"
    assert all(Path(file).is_file() for file in found["files"])
    monkeypatch.setattr(figures, "FIGURES", dict.fromkeys(FIGURES, drawn_before))
    again = json.loads(call(capsys, "diagnose", hash, "--json", "--out", "there", "--clients", "2")[1])
    assert again == found


@pytest.mark.usefixtures("_undrawn")
def test_a_run_whose_next_round_nobody_answers(capsys):
    hash = trained(dropout_rate=0.9, rounds=5)
    folder = Store("runs").folder(hash)
    beyond = {**folder.records()[-1], "round": 6, "per_class_accuracy": [0.0] * 10}
    found = json.loads(call(capsys, "diagnose", hash, "--json")[1])
    assert found["round"] == 5
    folder.append_record(beyond)  # a record that no checkpoint covers
    assert json.loads(call(capsys, "diagnose", hash, "--json")[1])["forgetting"] == found["forgetting"]


@pytest.mark.usefixtures("_undrawn")
def test_the_tables_say_that_they_are_of_some_clients(capsys):
    hash = trained(rounds=1)
    assert "first 2 of the cohort's 4 clients" in call(capsys, "diagnose", hash, "--clients", "2")[1]
    assert "of the cohort's" not in call(capsys, "diagnose", f"runs/{hash}")[1]


@pytest.mark.usefixtures("_undrawn")
def test_a_third_loss_is_seen_beside_the_plain_and_the_calibrated_one(capsys):
    hash = trained(algorithm="fedrs", rounds=1)
    code, out, _ = call(capsys, "diagnose", hash, "--quiet")
    assert (code, out) == (0, f"diagnosis/{hash[:8]}/diagnosis.json\n")
    assert list(json.loads(Path(out.strip()).read_text())["methods"]) == ["fedrs", "fedavg", "fedlc"]


def test_a_loss_without_a_softmax_is_said_to_be_none(capsys, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"bound": figures.FIGURES["deviation_bound"]})
    code, out, _ = call(capsys, "diagnose", trained(algorithm="fedlc:denominator=others", rounds=1), "--all")
    assert code == 0
    assert "no softmax" in out


@pytest.mark.usefixtures("_undrawn")
def test_a_method_of_ones_own(capsys):
    own = f"{Path(__file__).parents[2]}/examples/own_algorithm.py:reweighted,power=0.25"
    code, out, err = call(capsys, "diagnose", trained(algorithm=own), "--json")
    assert (code, err) == (0, "")
    assert list(json.loads(out)["methods"]) == ["reweighted:power=0.25", "fedavg", "fedlc"]


def test_one_client(capsys):
    code, out, _ = call(capsys, "diagnose", trained(clients=1, partition="iid", rounds=1))
    assert code == 0
    assert "majority" in out


def test_one_class(capsys):
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    np.savez("one.npz", x_train=x, y_train=np.zeros(12, int), x_test=x, y_test=np.zeros(12, int))
    hash = trained(dataset="npz:one.npz", partition="iid", model="logistic", clients=2, rounds=1)
    code, out, err = call(capsys, "diagnose", hash, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["methods"]["fedavg"]
    assert found["deviation"]["summary"]["pairs"] == 0
    assert found["margins"]["clients"][0]["minimum"] == [None]


@pytest.mark.usefixtures("_undrawn")
def test_a_class_without_test_examples(capsys):
    x, y = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    np.savez("own.npz", x_train=x, y_train=y, x_test=x[y < 2], y_test=y[y < 2], client=(y == 0).astype(int))
    hash = trained(dataset="npz:own.npz", partition="natural", model="logistic", clients=2, rounds=1)
    code, out, err = call(capsys, "diagnose", hash, "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["methods"]["fedavg"]["deviation"]["pairs"]
    assert [row["bound"] is None for row in rows if row["client"] == 1] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["feed"], 2, "there is no run 'feed' in runs"),
        (["RUN", "--clients", "0"], 2, "clients is 0; allowed: 1 or more"),
        ([], 2, "Missing argument 'RUN'"),
    ],
)
def test_wrong_requests(capsys, arguments, code, message):
    hash = trained(rounds=1)
    given = [hash if word == "RUN" else word for word in arguments]
    found, out, err = call(capsys, "diagnose", *given)
    assert (found, out) == (code, "")
    assert message in err
    assert not Path("diagnosis").exists()


def test_a_run_without_a_checkpoint(capsys):
    hash = trained(rounds=1)
    Store("runs").folder(hash).checkpoint.unlink()
    code, _, err = call(capsys, "diagnose", hash)
    assert code == 1
    assert "has no checkpoint yet; let it run first" in err


def test_a_damaged_checkpoint(capsys):
    hash = trained(rounds=1)
    Store("runs").folder(hash).checkpoint.write_bytes(b"nothing")
    code, _, err = call(capsys, "diagnose", hash)
    assert code == 1
    assert "is damaged" in err


def test_a_run_that_diverges_in_its_next_round(capsys):
    """Each of the 23 steps of a round makes the weights four times as large: 2^92 after two rounds, too much after
    three."""
    iid = {"partition": "iid", "clients": 4, "model": "logistic", "batch_size": 16}
    code, _, err = call(capsys, "diagnose", trained(**iid, lr=50, weight_decay=0.1, rounds=2))
    assert code == 1
    assert "diverges in its next round" in err


def test_a_method_whose_local_updates_diverge_is_left_out(capsys, monkeypatch):
    finite = "fedskew.diagnostics.diagnosis.finite_update"
    monkeypatch.setattr(finite, lambda seen: None if seen.run.short_algorithm == "fedlc" else seen.update)
    code, out, _ = call(capsys, "diagnose", trained(rounds=1))
    assert code == 0
    assert "fedavg" in out
    assert "fedlc" not in out


def test_a_diverged_run(capsys):
    code, _, err = call(capsys, "diagnose", trained(lr=1e38, momentum=0.9))
    assert code == 1
    assert "has diverged" in err


@pytest.mark.usefixtures("_undrawn")
def test_a_run_from_a_gpu_is_diagnosed_without_one(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    hash = trained(rounds=1)
    file = Path("runs") / hash / "run.json"
    content = Store("runs").folder(hash).about()
    content["run"] |= {"device": "cuda", "precision": "tf32"}
    file.write_bytes(seal(content))
    assert call(capsys, "diagnose", hash, "--quiet")[0] == 0
