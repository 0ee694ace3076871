import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fedskew import Run, __version__
from fedskew.cli import RUN_OPTIONS, main

SMALL = ["--dataset", "synthetic:1,1,max_size=100", "--clients", "6", "--batch-size", "16", "--rounds", "6"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("FEDSKEW_RUNS", "FEDSKEW_DATA"):
        monkeypatch.delenv(name, raising=False)


def call(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def process(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "fedskew", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )


def test_options_are_the_fields_of_a_run():
    assert {*RUN_OPTIONS, "algorithm"} == set(Run.model_fields)


def test_help_needs_no_torch():
    code = (
        "import sys; from fedskew.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "compare" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["run", "compare", "inspect", "diagnose", "advise", "export"]
    + [f"runs {name}" for name in ("list", "show", "remove", "condense")]
    + [f"paper {name}" for name in ("list", "run", "show", "map")]
    + [f"flower {name}" for name in ("init", "certificates")],
)
def test_every_help_shows_an_example(capsys, command):
    code, out, _ = call(capsys, *command.split(), "--help")
    assert code == 0
    assert f"Example: fedskew {command}" in " ".join(out.split())
    assert "--json" in out


def test_run_prints_one_json_document(capsys):
    code, out, err = call(capsys, "run", *SMALL, "--algorithm", "fedlc+scaffold", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert set(result) == {
        "run_hash", "algorithm", "seed", "rounds", "accuracy", "accuracy_last10", "balanced_accuracy",
        "client_accuracy", "loss", "validation_accuracy", "per_class_accuracy", "diverged", "seconds", "engine",
        "device", "partition_hash", "run", "folder",
    }  # fmt: skip
    assert len(result["per_class_accuracy"]) == 10
    assert result["rounds"] == 6
    assert len(result["partition_hash"]) == 64
    assert Run(**result["run"]).hash == result["run_hash"]
    again = json.loads(call(capsys, "run", *SMALL, "--algorithm", "fedlc+scaffold", "--json")[1])
    assert again == result


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_run_goes_on_to_the_same_numbers(capsys):
    command = ["run", "--dataset", "synthetic:1,1", "--clients", "100", "--algorithm", "fedlc+scaffold",
               "--rounds", "60", "--json"]  # fmt: skip
    whole = json.loads(call(capsys, *command, "--runs", "whole")[1])
    killed = process(*command, "--runs", "parts", OMP_NUM_THREADS="1")  # as many threads as here
    records = os.path.join("parts", whole["run_hash"], "records.jsonl")
    deadline = time.monotonic() + 60
    while not (os.path.exists(records) and os.path.getsize(records) > 3000):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    parts = json.loads(call(capsys, *command, "--runs", "parts")[1])
    for name in ("accuracy", "accuracy_last10", "balanced_accuracy", "loss", "per_class_accuracy", "partition_hash"):
        assert parts[name] == whole[name]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_with_130_and_keeps_what_was_done(tmp_path, number):
    command = ["run", "--dataset", "synthetic:1,1", "--clients", "50", "--rounds", "100000", "--json"]
    working = process(*command)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.glob("runs/*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    working.send_signal(number)
    _, err = working.communicate(timeout=60)
    assert working.returncode == 130
    assert err.count("\n") == 1
    assert "goes on from there" in err
    assert list(tmp_path.glob("runs/*/checkpoint.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--algorithm", "fedlx"], ["fedlx", "fedlc"]),
        (["run", "--algorithm", "fedlc:tau=x"], ["tau", "x"]),
        (["run", "--lrr", "1"], ["--lrr", "--lr"]),
        (["run", "--rounds", "many"], ["--rounds", "many"]),
        (["run", "--lr", "nan"], ["lr", "nan"]),
        (["run", "--lr", "-1"], ["lr", "-1"]),
        (["run", "--dataset", "mnist"], ["mnist", "digits"]),
        (["run", "--partition", "dirichlet:0.01,min_size=70"], ["min_size"]),
        (["run", "--partition", "shards:1000"], ["shards", "1000"]),
        (["run", "--model", "cnn"], ["8x8", "mlp"]),
        (["run", "--algorithm", "fedavg,fedlc"], ["compare"]),
        (["run", "missing.toml"], ["missing.toml"]),
        (["compare"], ["--algorithm"]),
        (["compare", "--algorithm", "fedavg", "--seeds", "0"], ["seeds", "0"]),
        (["compar"], ["compar"]),
        (["compare", "--algorithm", "fedavg,fedavg"], ["fedavg", "twice"]),
        (["run", "--algorithm", "fedopt:server=adagrad,b1=0.5"], ["adagrad", "b1"]),
        (["run", "--device", "mps"], ["mps", "cuda"]),
        (["runs", "show", "abc"], ["abc", "runs list"]),
        (["runs", "remove"], ["RUN"]),
        (["export", "abc", "x.safetensors"], ["abc"]),
        (["inspect", "--partition", "labels:99"], ["99"]),
    ],
)
def test_a_wrong_request_is_one_or_two_lines_and_exit_code_2(capsys, arguments, words):
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert 1 <= err.count("\n") <= 2
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_a_failure_while_working_is_exit_code_1(capsys, tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "def bad():\n    def loss(logits, labels, counts):\n        raise RuntimeError('no')\n    return loss\n"
    )
    code, _, err = call(capsys, "run", *SMALL, "--algorithm", f"{file}:bad")
    assert code == 1
    assert err.startswith("fedskew: round 1, clients 0, 1, 2, 3, 4, 5: no; this run has its own loss: ")
    assert err.count("\n") == 1


def test_an_unwritable_store_is_exit_code_1(capsys, tmp_path):
    (tmp_path / "runs").write_text("a file, not a folder")
    code, _, err = call(capsys, "run", *SMALL)
    assert code == 1
    assert "cannot write" in err


def test_run_from_a_toml_file(capsys, tmp_path):
    (tmp_path / "my.toml").write_text(
        'dataset = "synthetic:1,1,max_size=100"\nclients = 6\nrounds = 3\nalgorithm = "fedlc"\n'
    )
    result = json.loads(call(capsys, "run", "my.toml", "--rounds", "2", "--json")[1])
    assert result["run"]["clients"] == 6
    assert result["rounds"] == 2
    assert result["algorithm"].startswith("fedlc")
    (tmp_path / "bad.toml").write_text("rounds = \n")
    assert call(capsys, "run", "bad.toml")[0] == 2
    (tmp_path / "odd.toml").write_text("ruonds = 3\n")
    code, _, err = call(capsys, "run", "odd.toml")
    assert code == 2
    assert "rounds" in err


def test_plain_and_quiet_output(capsys):
    code, out, _ = call(capsys, "run", *SMALL)
    assert code == 0
    for word in (
        "fedavg on synthetic:1,1",
        "balanced accuracy",
        "per class",
        "stacked",
        "kept in",
        "next: fedskew diagnose ",
    ):
        assert word in out
    code, out, _ = call(capsys, "run", *SMALL, "--quiet")
    assert len(out.split()) == 2
    assert len(out.splitlines()) == 1


def test_compare_writes_table_curves_and_partition(capsys, tmp_path):
    arguments = ["compare", *SMALL, "--algorithm", "fedavg,fedlc", "--algorithm", "fedlc:tau=2", "--seeds", "2"]
    code, out, _ = call(capsys, *arguments, "--out", "figures")
    assert code == 0
    for word in ("fedavg", "fedlc", "fedlc:tau=2", "±", "2 seeds"):
        assert word in out
    made = {path.name for path in (tmp_path / "figures").iterdir()}
    assert made == {"curves.png", "curves.svg", "partition.png", "partition.svg", "table.csv", "table.md"}
    document = json.loads(call(capsys, *arguments, "--json")[1])
    assert [row["method"] for row in document["rows"]] == ["fedavg", "fedlc", "fedlc:tau=2"]
    assert set(document) == {"runs", "rows", "files"}
    row = document["rows"][1]
    values = [json.loads(call(capsys, "runs", "show", h, "--json")[1])["accuracy"] for h in document["runs"]["fedlc"]]
    mean = sum(values) / 2
    assert row["accuracy"]["mean"] == pytest.approx(mean)
    assert row["accuracy"]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)


def test_inspect(capsys, tmp_path):
    arguments = ["inspect", "--partition", "dirichlet:0.5", "--clients", "4"]
    code, out, _ = call(capsys, *arguments, "--out", "split", "--export", "split.json")
    assert code == 0
    assert "effective number of classes" in out
    assert {"split.png", "split.svg", "split.json"} <= {path.name for path in tmp_path.iterdir()}
    card = json.loads(call(capsys, *arguments, "--json")[1])
    assert sum(card["sizes"]) == card["samples"] == 1442
    assert len(card["counts"]) == 4
    quiet = call(capsys, *arguments, "--quiet")[1].strip()
    assert quiet == card["hash"]


def test_the_store_from_the_command_line(capsys, tmp_path, monkeypatch):
    assert "no runs yet" in call(capsys, "runs")[1]
    monkeypatch.setenv("FEDSKEW_RUNS", str(tmp_path / "mine"))
    call(capsys, "run", *SMALL)
    listed = json.loads(call(capsys, "runs", "list", "--json")[1])
    assert [row["state"] for row in listed] == ["done"]
    name = listed[0]["hash"]
    assert name[:8] in call(capsys, "runs")[1]
    assert name in call(capsys, "runs", "show", name[:6])[1]
    (tmp_path / "mine" / name / "run.json").write_text("{}")
    assert json.loads(call(capsys, "runs", "list", "--json")[1])[0]["state"] == "unreadable"
    assert json.loads(call(capsys, "runs", "remove", name[:6], "--json")[1]) == {"removed": [name]}
    assert not (tmp_path / "mine" / name).exists()


def test_export_for_plain_pytorch(capsys, tmp_path):
    import torch
    from safetensors.torch import load_file

    from fedskew.experiments.exporting import load_model
    from fedskew.simulation import build_federation

    result = json.loads(call(capsys, "run", *SMALL, "--json")[1])
    code, out, _ = call(capsys, "export", result["run_hash"][:8], "model.safetensors")
    assert code == 0
    assert "after round 6" in out
    state = load_file("model.safetensors")
    plain = torch.nn.Linear(60, 10)
    plain.load_state_dict({name.removeprefix("linear."): leaf for name, leaf in state.items()})
    data = build_federation(Run(**result["run"])).dataset
    right = (plain(data.x_test).argmax(-1) == data.y_test).double().mean().item()
    assert right == pytest.approx(result["accuracy"])
    assert torch.equal(load_model("model.safetensors")(data.x_test), plain(data.x_test))


def test_the_module_is_the_command_line_too():
    done = process("runs", "list")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (0, "")
    assert "no runs yet" in out
    assert __version__


def test_an_interruption_that_python_swallowed_is_noticed_after_the_round(capsys, monkeypatch):
    from fedskew import cli
    from fedskew.simulation import simulate

    def swallowing(run, probes, store):
        for record in simulate(run, probes, store=store):
            if record.round == 3:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            yield record

    monkeypatch.setattr("fedskew.simulation.simulate", swallowing)
    code, _, err = call(capsys, "run", *SMALL)
    assert code == 130
    assert "goes on from there" in err
    assert cli.Path("runs").exists()
    listed = json.loads(call(capsys, "runs", "list", "--json")[1])
    assert listed[0]["progress"] == "3/6"
