import contextlib
import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedskew import Run, Store, __version__, simulate, tracking
from fedskew.cli import main
from fedskew.cli.options import RUN_OPTIONS, algorithm_names
from fedskew.cli.shared import trained
from fedskew.cli.terminal.progress import _per_class
from fedskew.data import DATASETS
from fedskew.report.page.entries import read_entries
from fedskew.simulation import jobs
from fedskew.simulation.execute import Problem
from tests.cli.calling import call
from tests.helpers.waiting import PATIENCE, has_lines, wait_until

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

SMALL = ["--dataset", "synthetic:1,1,max_size=100", "--clients", "6", "--batch-size", "16", "--rounds", "6"]


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


@pytest.mark.parametrize("command", ["run", "flower init"])
def test_help_names_every_data_set(capsys, command):
    said = call(capsys, *command.split(), "--help")[1].partition("--dataset TEXT")[2].partition("[default")[0]
    assert set(DATASETS) <= set(re.findall(r"\w+", said))


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
    ["run", "compare", "sweep", "tune", "inspect", "diagnose", "advise", "report", "export"]
    + [f"runs {name}" for name in ("list", "show", "remove", "condense")]
    + [f"data {name}" for name in ("list", "verify", "fetch")]
    + [f"paper {name}" for name in ("list", "run", "show", "map")]
    + [f"flower {name}" for name in ("init", "certificates")],
)
def test_every_help_shows_an_example(capsys, command):
    code, out, _ = call(capsys, *command.split(), "--help")
    assert code == 0
    assert f"Example: fedskew {command}" in " ".join(out.split())
    assert "--json" in out
    assert "\\" not in out


@pytest.mark.parametrize("command", [[], ["paper"], ["data"], ["flower"]])
def test_a_group_without_a_command_prints_its_help(capsys, command):
    assert call(capsys, *command) == call(capsys, *command, "--help")


@pytest.mark.parametrize("command", [[], ["runs"], ["paper"], ["data"], ["flower"]])
def test_no_line_of_a_groups_help_is_cut(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call(capsys, *command, "--help")
    listed = out.partition("Commands:\n")[2].splitlines()
    assert listed
    assert not any("..." in line or line.startswith("   ") for line in listed)


def test_commands_are_listed_as_in_the_docs(capsys):
    _, out, _ = call(capsys, "--help")
    listed = [line.split()[0] for line in out.partition("Commands:")[2].strip().splitlines()]
    docs = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert listed == re.findall(r"^\| `fedskew (\w+)", docs, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "found"),
    [("fedskew dia", ["diagnose"]), ("fedskew runs sh", ["show"]), ("fedskew run --loc", ["--local-epochs"])],
)
def test_a_shell_completes_commands_and_options(capsys, monkeypatch, line, found):
    monkeypatch.setenv("_FEDSKEW_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert call(capsys) == (0, "".join(f"plain,{word}\n" for word in found), "")
    monkeypatch.setenv("_FEDSKEW_COMPLETE", "zsh_source")
    assert "_FEDSKEW_COMPLETE=zsh_complete" in call(capsys)[1]


def test_the_first_help_has_a_command_to_copy(capsys):
    """One that trains well, and over two lines as a shell reads them."""
    out = call(capsys, "--help")[1]
    (command,) = re.findall(r"^ +(fedskew compare .*\\\n.*)$", out, re.M)
    assert {"--lr", "--batch-size", "--rounds"} <= set(shlex.split(command.replace("\\\n", " ")))
    assert "completion" not in out


def test_a_default_is_the_commands_own(capsys):
    for command, default in (("run", "0"), ("compare", "0"), ("tune", "0.1")):
        said = " ".join(call(capsys, command, "--help")[1].partition("--validation ")[2].partition(" --")[0].split())
        assert said.endswith(f" [default: {default}]"), command  # and no backslash


def test_version(capsys):
    assert call(capsys, "--version") == (0, f"fedskew {__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "repeats", "default"), [("run", False, True), ("compare", True, False), ("flower init", False, True)]
)
def test_what_is_said_of_algorithm_holds(capsys, command, repeats, default):
    _, out, _ = call(capsys, *command.split(), "--help")
    said = " ".join(out.partition("--algorithm TEXT")[2].partition(" --")[0].split())
    assert ("can be repeated" in said, "[default: fedavg]" in said) == (repeats, default)


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
    records = Path("parts", whole["run_hash"], "records.jsonl")
    wait_until(lambda: has_lines(records, 5), killed)
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
    wait_until(lambda: any(has_lines(path) for path in tmp_path.glob("runs/*/records.jsonl")), working)
    working.send_signal(number)
    _, err = working.communicate(timeout=PATIENCE)
    assert working.returncode == 130
    assert err.count("\n") == 1
    assert "the same command resumes" in err
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
        (["run", "--dataset", "imdb"], ["mnist", "digits"]),
        (["run", "--partition", "dirichlet:0.01,min_size=70"], ["min_size"]),
        (["run", "--partition", "shards:1000"], ["shards", "1000"]),
        (["run", "--model", "cnn"], ["8x8", "mlp"]),
        (["run", "--algorithm", "fedavg,fedlc"], ["compare"]),
        (["run", "missing.toml"], ["missing.toml"]),
        (["run", "--algorithm", "fedlc", "--tau", "1"], ["--tau is an argument of", "--algorithm fedlc:tau=..."]),
        (["compare", "--algorithm", "fedavg", "fedlc"], ["there is no file fedlc", "--algorithm fedavg,fedlc"]),
        (["compare", "fedavg", "fedlc"], ["extra argument", "--algorithm fedavg,fedlc"]),
        (["run", "--seeds", "3"], ["fedskew run has no option --seeds", "compare, sweep, tune"]),
        (["export", "abc", "model.pt"], ["model.pt", "FILE.safetensors or FILE.onnx"]),
        (["compare"], ["--algorithm"]),
        (["compare", "--algorithm", "fedavg", "--seeds", "0"], ["seeds", "0"]),
        (["compar"], ["compar"]),
        (["compare", "--algorithm", "fedavg", "--target", "60"], ["target", "60", "0.6"]),
        (["compare", "--algorithm", "fedavg", "--partition", "iid", "--iid"], ["iid", "already"]),
        (["compare", "--algorithm", "fedavg,fedavg"], ["fedavg", "twice"]),
        (["run", "--algorithm", "fedopt:server=adagrad,b1=0.5"], ["adagrad", "b1"]),
        (["runs", "show", "abc"], ["abc", "runs list"]),
        (["runs", "remove"], ["RUN"]),
        (["run", "--device", "mps"], ["mps", "are untested", "allowed: cpu"]),
        (["export", "abc", "x.safetensors"], ["abc"]),
        (["inspect", "--partition", "labels:99"], ["99"]),
        (["inspect", "--clients", "1000000000"], ["1000000000 clients", "1442 examples to share"]),
        (["inspect", "--dataset", "synthetic:1,1", "--clients", "1000000000"], ["synthetic:1,1", "fewer clients"]),
        (["compare", "--algorithm", "fedavg", "--seeds", "1000000000"], ["seeds", "1 to 1,000"]),
        (["run", "--local-epochs", "1000000000"], ["this run needs at least"]),
        (["run", "--model", "mlp:hidden=1000000000000"], ["mlp:hidden=1000000000000", "GB"]),
        (["run", "--algorithm", "fedlc\x1b[2J"], [r"fedlc\x1b[2J", "without control characters"]),
        (["run", "--data-dir", "~nobody-of-this-name", "--dataset", "svhn"], ["~nobody-of-this-name", "home"]),
        (["run", "--algorithm", "a" * 5000], ["aaa ... ", "known: fedavg"]),
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
    failed = "bad.py, line 3, in loss: RuntimeError: no"
    assert err.startswith(f"fedskew: round 1, clients 0, 1, 2, 3, 4, 5: {failed}; this run has its own loss: ")
    assert err.count("\n") == 1


def test_an_error_without_memory_says_so(capsys, monkeypatch):
    import fedskew.simulation.plan

    def fail(run):
        raise RuntimeError("round 1") from MemoryError("Unable to allocate 9 TiB for an array")

    monkeypatch.setattr(fedskew.simulation.plan, "build_federation", fail)
    code, _, err = call(capsys, "inspect")
    assert (code, err.split(";")[0]) == (1, "fedskew: out of memory")


def test_a_failure_of_the_system_without_a_path_is_not_called_none(capsys, monkeypatch):
    import fedskew.simulation.plan

    def fail(run):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fedskew.simulation.plan, "build_federation", fail)
    assert call(capsys, "inspect") == (1, "", "fedskew: No space left on device\n")


def test_what_others_wrote_is_shown_and_not_obeyed(capsys, tmp_path):
    """Names of files and folders reach the terminal in messages, tables and notes."""
    name = "a\x1b[2J\x9b\u202e[/bold]\udcff"
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / f"{name.replace('/', '')}.csv").write_text("1,x\n")
    for arguments in (
        ["advise", str(next((tmp_path / "tables").iterdir()))],
        ["data", "list", "--data-dir", name],
        ["runs", "show", name],
    ):
        _, out, err = call(capsys, *arguments)
        assert not [letter for letter in out + err if not letter.isprintable() and letter != "\n"]
        assert r"\x1b[2J\x9b\u202e" in out + err


def test_a_terminal_that_lacks_letters_gets_its_table(monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--clients", "3"])
    assert rb"\xb7" in screen.buffer.getvalue()


def test_an_unwritable_store_is_exit_code_1(capsys, tmp_path):
    (tmp_path / "runs").write_text("a file, not a folder")
    code, _, err = call(capsys, "run", *SMALL)
    assert code == 1
    assert re.search(r"cannot write to runs/\w+: .*; another store is named by --runs", err)


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


def _own_model():
    """A module of one's own with dropout, whose clients train one by one."""
    Path("own.py").write_text(
        "from torch import nn\n\n\ndef dropping(num_classes: int):\n"
        "    return nn.Sequential(nn.Linear(60, num_classes), nn.Dropout(0.1))\n"
    )
    return "own.py:dropping"


def test_many_classes_are_not_listed():
    shares = [None, *[0.5] * 29]
    shares[3], shares[7] = 0.1, 0.9
    assert _per_class(shares, None) == "lowest 3: 10.00, highest 7: 90.00 (`runs show` has all 30)"


def test_plain_and_quiet_output(capsys):
    code, out, _ = call(capsys, "run", *SMALL)
    assert code == 0
    for word in (
        "fedavg on synthetic:1,1",
        "balanced accuracy",
        "% per class        0: ",
        "kept in",
        "next: fedskew diagnose ",
    ):
        assert word in out
    assert "stacked" not in out
    assert "engine             stacked on cpu: " in call(capsys, "run", *SMALL, "--watch")[1]
    slow = call(capsys, "run", *SMALL, "--model", _own_model(), "--seed", "1")[1]
    assert re.search("^engine +serial on cpu: the module has its own buffers or dropout$", slow, re.M)
    code, out, _ = call(capsys, "run", *SMALL, "--quiet")
    assert len(out.split()) == 2
    assert len(out.splitlines()) == 1


def test_what_another_process_works_on_comes_last(capsys):
    busy = Store("runs").folder(json.loads(call(capsys, "run", *SMALL[:-1], "3", "--json")[1])["run_hash"])
    with busy.lock():
        code, out, err = call(capsys, "compare", *SMALL, "-a", "fedavg,fedlc,fedrs")
        assert (code, out) == (1, "")
        assert f"working on run {busy.path.name}" in err
        assert ", which fedavg needs; everything else is done and kept" in err
        done = json.loads(call(capsys, "runs", "--state", "done", "--json")[1])
        assert {row["algorithm"] for row in done} == {"fedavg", "fedlc", "fedrs"}
        assert {row["progress"] for row in done if row["algorithm"] != "fedavg"} == {"6/6"}
        assert "everything else" not in call(capsys, "compare", *SMALL, "-a", "fedavg")[2]
    assert call(capsys, "compare", *SMALL, "-a", "fedavg,fedlc,fedrs")[0] == 0


def test_compare_writes_table_curves_and_partition(capsys, tmp_path):
    arguments = ["compare", *SMALL, "--algorithm", "fedavg,fedlc", "--algorithm", "fedlc:tau=2", "--seeds", "2"]
    code, out, _ = call(capsys, *arguments, "--out", "figures")
    assert code == 0
    for word in ("fedavg", "fedlc", "fedlc:tau=2", "±", "2 seeds"):
        assert word in out
    verdict = r"fedlc:tau=2 against fedavg is not decided: two seeds, [+-]\d+\.\d\d\n"
    assert re.search(f"last 3 rounds: {verdict}", out)
    made = {path.name for path in (tmp_path / "figures").iterdir()}
    tables, drawn = (
        {"table.csv", "table.md", "table.tex"},
        ("curves.png", "curves.svg", "partition.png", "partition.svg"),
    )
    assert made == {".fedskew-compare.json", *tables, *drawn}
    document = json.loads(call(capsys, *arguments, "--json")[1])
    assert [row["method"] for row in document["rows"]] == ["fedavg", "fedlc", "fedlc:tau=2"]
    assert set(document) == {"runs", "iid_runs", "target", "rows", "files"}
    row = document["rows"][1]
    values = [json.loads(call(capsys, "runs", "show", h, "--json")[1])["accuracy"] for h in document["runs"]["fedlc"]]
    mean = sum(values) / 2
    assert row["accuracy"]["mean"] == pytest.approx(mean)
    assert row["accuracy"]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert set(row["against_baseline"]) == {"mean", "half", "seeds", "lost", "other_lost", "verdict"}
    assert document["rows"][0]["against_baseline"] is None
    assert (row["iid"], row["gap_closed"], document["iid_runs"]) == (None, None, None)


def test_jobs_give_what_one_process_gives(capsys):
    methods = "--algorithm", "fedavg,fedlc", "--seeds", "2"
    tables = {}
    for number in ("1", "2", "4"):  # with 4, every seed has a process
        where = "--runs", f"runs{number}", "--out", f"out{number}"
        code, out, _ = call(capsys, "compare", *SMALL, *methods, *where, "--jobs", number, "--json")
        assert code == 0
        tables[number] = [(row["method"], row["accuracy"]["each"]) for row in json.loads(out)["rows"]]
    assert tables["1"] == [(name, pytest.approx(accuracy)) for name, accuracy in tables["2"]]
    assert tables["1"] == [(name, pytest.approx(accuracy)) for name, accuracy in tables["4"]]
    code, _, err = call(capsys, "compare", *SMALL, *methods, "--jobs", "0")
    assert code == 2
    assert "jobs is 0; allowed: 1 to 256" in err


def test_with_jobs_a_run_that_fails_does_not_stop_the_others(capsys):
    one = json.loads(call(capsys, "run", *SMALL, "--algorithm", "fedlc", "--json")[1])
    (Path(one["folder"]) / "records.jsonl").write_text("?\n")
    asked = *SMALL, "--algorithm", "fedavg,fedlc,fedprox", "--jobs", "2"
    code, _, err = call(capsys, "compare", *asked)
    assert code == 1
    assert err.count("records.jsonl") == 1
    listed = json.loads(call(capsys, "runs", "--json")[1])
    assert sorted(row["algorithm"] for row in listed if row["state"] == "done") == ["fedavg", "fedprox"]


@pytest.mark.parametrize("command", [("compare", "--algorithm", "fedavg,fedlc"), ("sweep", "--batch-size", "16,32")])
def test_if_every_run_diverged_the_command_fails_after_it_has_told(capsys, command):
    diverging = "--dataset", "digits", "--rounds", "3", "--seeds", "3", "--lr", "1e30"
    code, out, err = call(capsys, *command, *diverging)
    assert (code, err) == (1, "fedskew: every run diverged; a smaller lr may help\n")
    assert out.count("3 diverged") == 2
    assert "last ten" not in out
    code, out, _ = call(capsys, *command, *diverging, "--json")
    assert (code, [row["diverged"] for row in json.loads(out)["rows"]]) == (1, [3, 3])


def test_what_a_process_has_told_before_it_died_is_not_told_again(capsys, monkeypatch):
    told, run = [], Run(dataset="digits", clients=2, rounds=3)

    def dying(parts, store, jobs):
        first, second, _ = simulate(run, store=store)
        yield from ((run, first), (run, second))
        yield Problem((run,), "the process that did it ended with -9", died=True)

    monkeypatch.setattr(jobs, "in_jobs", dying)
    monkeypatch.setattr(tracking, "Several", lambda _: lambda _, record: told.append(record.round))
    trained([(("fedavg", ", test"), [run])], Store("runs"), (), 2, show=False)
    assert told == [1, 2, 3]
    said = f"fedskew: note: fedavg, test, run {run.hash[:8]}: the process that did it ended with -9; it is done again\n"
    assert capsys.readouterr().err == said


def test_compare_calls_methods_as_asked_and_draws_for_a_paper(capsys, tmp_path):
    arguments = ["compare", *SMALL, "--algorithm", "fedavg,fedlc:tau=2", "--name", "fedlc:tau=2=FedLC (tau=2)"]
    arguments += ["--name", "fedavg=FedAvg"]
    code, out, _ = call(capsys, *arguments, "--out", "figures", "--style", "paper")
    assert code == 0
    assert "FedLC (tau=2)" in out
    assert "fedlc:tau=2" not in out
    assert "fedavg" not in out
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        ".fedskew-compare.json",
        "curves.pdf",
        "partition.pdf",
        "table.csv",
        "table.md",
        "table.tex",
    }
    assert "| FedLC (tau=2) |" in (tmp_path / "figures" / "table.md").read_text()
    heads, first = re.findall(r"(.+) \\\\", (tmp_path / "figures" / "table.tex").read_text())[:2]
    assert heads == r"method & accuracy, last 3 rounds (\%) & difference to FedAvg (points) & "
    assert first.startswith("FedAvg & ")
    document = json.loads(call(capsys, *arguments, "--json")[1])
    assert [(row["method"], row["name"]) for row in document["rows"]] == [
        ("fedavg", "FedAvg"),
        ("fedlc:tau=2", "FedLC (tau=2)"),
    ]
    for wrong, said in ((["--name", "fedrs=F"], "name is 'fedrs=F'"), (["--style", "slide"], "style is 'slide'")):
        code, _, err = call(capsys, *arguments, *wrong, "--runs", "elsewhere")
        assert code == 2
        assert said in err
        assert not (tmp_path / "elsewhere").exists()


def test_compare_says_which_comparison_it_replaces(capsys, tmp_path):
    first = ["compare", *SMALL, "--algorithm", "fedavg,fedlc"]
    assert "holds another" not in call(capsys, *first)[2]
    assert "holds another" not in call(capsys, *first, "--style", "paper")[2]
    assert sorted(path.name for path in Path("comparison").glob("curves.*")) == ["curves.pdf"]
    held = (
        r"comparison holds another comparison \(synthetic.*, 6 rounds, one seed: fedavg, fedlc, against fedavg\), which"
    )
    for other in (["--algorithm", "fedrs"], ["--seeds", "2"], ["--baseline", "fedlc"], ["--lr", "0.5"]):
        code, _, err = call(capsys, *first, *other, "--quiet")
        assert code == 0
        assert re.search(held, " ".join(err.split()))
        assert call(capsys, *first, "--out", "elsewhere")[2] == ""
        call(capsys, *first)
    call(capsys, "compare", *SMALL, "--algorithm", "fedlc", "--quiet")
    assert "6 rounds, one seed: fedlc), which" in " ".join(call(capsys, *first)[2].split())


def test_compare_replaces_only_what_it_wrote(capsys, tmp_path):
    arguments = ["compare", *SMALL, "--algorithm", "fedavg", "--out", "figures"]
    call(capsys, *arguments)
    Path("figures/notes.md").write_text("mine")
    assert call(capsys, *arguments)[0] == 0
    Path("figures/table.tex").write_text("edited")
    code, _, err = call(capsys, *arguments, "--lr", "0.5")
    assert code == 2
    assert "figures/table.tex would be lost" in " ".join(err.split())
    assert (Path("figures/table.tex").read_text(), Path("figures/notes.md").read_text()) == ("edited", "mine")
    Path("figures/table.tex").unlink()
    Path("figures/.fedskew-compare.json").write_text("[]")
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "figures/table.md would be lost" in " ".join(err.split())


def test_compare_judges_against_another_baseline(capsys, tmp_path):
    small = ["--dataset", "digits", "--partition", "shards:2", "--clients", "4", "--rounds", "3"]
    methods = [*small, "--algorithm", "fedavg,fedlc,fedlc:tau=1"]
    code, out, _ = call(capsys, "compare", *methods, "--baseline", "fedlc:tau=5", "--name", "fedlc=FedLC")
    assert code == 0
    assert re.search(r"fedavg against FedLC is not decided: one seed", out)
    assert "FedLC's end" in " ".join(out.split())
    assert "against fedavg" not in out
    for kind in ("md", "tex"):
        assert "FedAvg" not in (tmp_path / "comparison" / f"table.{kind}").read_text()
    document = json.loads(call(capsys, "compare", *methods, "--baseline", "fedlc", "--iid", "--json")[1])
    assert [row["against_baseline"] is None for row in document["rows"]] == [False, True, False]
    assert {row["baseline"] for row in document["rows"]} == {"fedlc"}
    level = [row["iid"] for row in document["rows"]]
    assert [row["against_baseline"] is None for row in level] == [False, True, False]
    code, _, err = call(capsys, "compare", *methods, "--baseline", "fedrs", "--runs", "elsewhere")
    assert code == 2
    assert "baseline is 'fedrs'; allowed: one of the compared methods, fedavg; fedlc; fedlc:tau=1" in err
    assert not (tmp_path / "elsewhere").exists()


def test_a_method_is_named_as_it_was_asked_for(capsys):
    Path("own.py").write_text(
        "from fedskew import fedlc\n\n\ndef mine(power: float = 0.5):\n    return fedlc(1 + power)\n"
    )
    asked = {"own.py:mine": "Ours", "own.py:mine,power=1.0+scaffold": "Ours + S", "fedlc:tau=5": "FedLC"}
    names = [word for method, name in asked.items() for word in ("-a", method, "--name", f"{method}={name}")]
    code, out, err = call(capsys, "compare", *SMALL[:-2], "--rounds", "1", *names, "--json")
    assert (code, err) == (0, "")
    assert [row["name"] for row in json.loads(out)["rows"]] == [*asked.values()]
    one = ["compare", *SMALL[:-2], "--rounds", "1", "-a", "own.py:mine", "--name", "mine=Ours", "--json"]
    assert [row["name"] for row in json.loads(call(capsys, *one)[1])["rows"]] == ["Ours"]
    code, _, err = call(capsys, *one, "-a", "own.py:mine,power=1.0")
    assert code == 2
    assert "name is 'mine=Ours'; allowed: METHOD=NAME with one of mine:power=0.5, mine:power=1" in err


def test_compare_counts_rounds_and_the_share_of_the_iid_gap(capsys, tmp_path):
    small = ["--dataset", "digits", "--clients", "4", "--lr", "0.1", "--rounds", "12", "--eval-every", "3"]
    split = ["--partition", "shards:2", "--algorithm", "fedavg,fedlc", "--seeds", "2"]
    document = json.loads(call(capsys, "compare", *small, *split, "--iid", "--json")[1])
    base, other = document["rows"]
    assert set(document["iid_runs"]) == {"fedavg", "fedlc"}
    shown = json.loads(call(capsys, "runs", "show", document["iid_runs"]["fedlc"][1], "--json")[1])
    assert (shown["run"]["partition"], shown["run"]["seed"]) == ("iid", 1)
    assert base["gap_closed"]["share"] == 0
    means = [row["accuracy_last10"]["mean"] for row in (other, base, base["iid"])]
    assert other["gap_closed"]["share"] == pytest.approx((means[0] - means[1]) / (means[2] - means[1]))
    assert set(other["rounds_to_reach"]) == {"rounds", "reached", "seeds"}
    code, out, _ = call(capsys, "compare", *small, *split, "--iid", "--target", "0.01", "--out", "figures")
    assert code == 0
    for word in ("rounds to", "IID gap", "on IID data", "evaluated ones, every 3 rounds"):
        assert word in out
    table = list(csv.DictReader((tmp_path / "figures" / "table.csv").read_text().splitlines()))
    assert [row["rounds_to_reach"] for row in table] == ["3", "3"]  # nothing is evaluated earlier
    assert float(table[1]["iid_gap_closed"]) == pytest.approx(other["gap_closed"]["share"])
    assert "| rounds to 1 % | IID gap closed |" in (tmp_path / "figures" / "table.md").read_text()


def test_compare_without_fedavg_has_a_target_only_if_it_is_given(capsys):
    document = json.loads(call(capsys, "compare", *SMALL, "--algorithm", "fedlc", "--json")[1])
    assert document["rows"][0]["rounds_to_reach"] is None
    document = json.loads(call(capsys, "compare", *SMALL, "--algorithm", "fedlc", "--target", "1", "--json")[1])
    assert document["rows"][0]["rounds_to_reach"] == {"rounds": None, "reached": 0, "seeds": 1}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["fedavg, fedlc"], ["fedavg", "fedlc"]),
        (["fedavg,fedlc:tau=1"], ["fedavg", "fedlc:tau=1"]),
        (["fedlc:tau=1,missing=floor,fedavg"], ["fedlc:tau=1,missing=floor", "fedavg"]),
        (["fedlc:1,floor+scaffold,fedrs+fedprox:mu=1"], ["fedlc:1,floor+scaffold", "fedrs+fedprox:mu=1"]),
        (["fedavg,fedlx:tau=1"], ["fedavg", "fedlx:tau=1"]),
        (["fedavg,mine.py:loss,base=a:b", "fedrs"], ["fedavg", "mine.py:loss,base=a:b", "fedrs"]),
        (["fedavg,mine.py:loss,fedlc"], ["fedavg", "mine.py:loss", "fedlc"]),
        (["mine.py:loss,0.5,a:b,base=fedlc,fedlc:tau=1"], ["mine.py:loss,0.5,a:b,base=fedlc", "fedlc:tau=1"]),
        (["mine.py:loss+scaffold,fedrs+fedprox,x=1"], ["mine.py:loss+scaffold", "fedrs+fedprox,x=1"]),
        (["mine.py:loss,mine.py:other,k=x.py:y"], ["mine.py:loss", "mine.py:other,k=x.py:y"]),
        (None, []),
    ],
)
def test_a_comma_before_a_method_begins_another(given, names):
    assert algorithm_names(given) == names


@pytest.mark.parametrize("named", ['"fedlc:tau=1,fedavg"', '["fedlc:tau=1", "fedavg"]'])
def test_compare_takes_the_methods_of_the_run_file(capsys, named):
    Path("run.toml").write_text(f"algorithm = {named}\nrounds = 1\n")
    small = [*SMALL[:-2], "--json"]
    code, out, _ = call(capsys, "compare", "run.toml", *small)
    assert code == 0
    assert [row["method"] for row in json.loads(out)["rows"]] == ["fedlc:tau=1", "fedavg"]
    _, out, _ = call(capsys, "compare", "run.toml", *small, "--algorithm", "fedrs")
    assert [row["method"] for row in json.loads(out)["rows"]] == ["fedrs"]


@pytest.mark.parametrize("named", ["3", "[1]"])
def test_methods_of_a_run_file_that_are_none(capsys, named):
    Path("run.toml").write_text(f"algorithm = {named}\n")
    code, _, err = call(capsys, "compare", "run.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert f"algorithm is {named} in run.toml" in err


def test_runs_alone_takes_the_options_of_runs_list(capsys):
    call(capsys, "run", *SMALL, "--quiet", "--runs", "here")
    for options in (["--json"], ["-q"], []):
        listed = call(capsys, "runs", "list", *options, "--runs", "here")
        assert call(capsys, "runs", *options, "--runs", "here") == listed
        assert listed[0] == 0
        assert "no runs" not in listed[1]
    code, _, err = call(capsys, "runs", "--json", "list")
    assert code == 2
    assert "after list" in err


def test_runs_says_what_diverged_and_what_cannot_be_read(capsys, tmp_path):
    call(capsys, "run", *SMALL, "--lr", "1e30", "--quiet")
    call(capsys, "run", *SMALL, "--quiet")
    call(capsys, "run", *SMALL, "--seed", "1", "--quiet")
    states = {row["hash"][:8]: row["state"] for row in json.loads(call(capsys, "runs", "--json")[1])}
    damaged = next(start for start, state in states.items() if state == "done")
    next(tmp_path.glob(f"runs/{damaged}*/run.json")).write_text("damaged")
    shown = {line.split()[0]: line for line in call(capsys, "runs")[1].splitlines() if line}
    for start, state in states.items():
        said = "unreadable" if start == damaged else state
        assert (said in shown[start]) == (said != "done")


def test_runs_shows_what_differs_and_takes_conditions(capsys):
    for options in (["--lr", "0.1"], ["--lr", "0.1", "-a", "fedlc:tau=1"], ["--lr", "0.2", "-a", "fedlc:tau=2"]):
        call(capsys, "run", *SMALL, *options, "--quiet")
    _, out, _ = call(capsys, "runs")
    assert {"method", "lr", "tau", "written"} <= set(out.split())
    assert "momentum" not in out
    _, out, _ = call(capsys, "runs", "--where", "lr=0.1")
    assert "tau" not in out.split()
    (row,) = json.loads(call(capsys, "runs", "--where", "lr=0.1", "--where", "algorithm=fedlc", "--json")[1])
    assert (row["algorithm"], row["fields"]["tau"], row["fields"]["lr"]) == ("fedlc:tau=1", 1.0, 0.1)
    ranked = json.loads(call(capsys, "runs", "list", "--sort", "accuracy", "--json")[1])
    assert [row["accuracy"] for row in ranked] == sorted((row["accuracy"] for row in ranked), reverse=True)
    code, out, _ = call(capsys, "runs", "--state", "diverged")
    assert (code, out) == (0, "none of the 3 runs matches\n")
    code, _, err = call(capsys, "runs", "--where", "rate=1")
    assert code == 2
    assert "where names 'rate'" in err


def test_runs_shows_first_how_well_each_run_did(capsys, monkeypatch):
    """At 80 columns the hash, the method, its accuracy and its federation stand in one table, one line for a run."""
    monkeypatch.setenv("COLUMNS", "80")
    other = [
        "--dataset",
        "digits",
        "--rounds",
        "1",
        "--momentum",
        "0.9",
        "--lr-schedule",
        "cosine",
        "--local-epochs",
        "2",
    ]
    for method in ("fedavg", "fedlc", "fedlc:tau=1"):
        call(capsys, "run", *SMALL, "-a", method, "--quiet")
        call(capsys, "run", *other, "-a", method, "--clients", "20", "--partition", "shards:2", "--quiet")
    out = call(capsys, "runs")[1]
    assert out.startswith("6 runs with seed 0\n")
    first, second = out.strip().split("\n\n")
    shown = re.findall(r"^[0-9a-f]{8}  fed\w+ +[\d.]+ +\d/\d +(?:digits shards:2, 20|synthetic:1,1\S+ 6) ", first, re.M)
    assert len(shown) == 6
    assert "momentum" in second
    assert not re.search("model|per round", out)
    call(capsys, "run", *other, "--clients", "20", "--partition", "shards:2", "--clients-per-round", "3", "--quiet")
    few = call(capsys, "runs", "--where", "dataset=digits", "--where", "algorithm=fedavg")[1]
    assert few.startswith("2 runs of fedavg, digits shards:2, 20 clients, seed 0\n")
    assert sorted(line.split()[3] for line in few.strip().splitlines()[-2:]) == ["3", "all"]


def test_without_a_terminal_a_run_is_a_line(capsys, monkeypatch):
    """However long; $COLUMNS limits it."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for options in (["-a", "fedlc:tau=1,missing=floor+scaffold+feddecorr:beta=0.25"], ["--lr-schedule", "step:2"]):
        call(capsys, "run", *SMALL, *options, "--momentum", "0.5", "--optimizer", "sgd", "--quiet")
        call(capsys, "run", *SMALL, *options, "--lr", "0.2", "--seed", "1", "--partition", "natural", "--quiet")
    hashes = [row["hash"][:8] for row in json.loads(call(capsys, "runs", "--json")[1])]
    lines = call(capsys, "runs")[1].splitlines()
    assert [line.split()[0] for line in lines if line][-4:] == hashes
    assert len(lines[-2]) > 120
    monkeypatch.setenv("COLUMNS", "70")
    assert max(len(line) for line in call(capsys, "runs")[1].splitlines()[1:]) <= 70


def test_one_round_is_a_round(capsys):
    _, out, _ = call(capsys, "run", *SMALL[:-1], "1")
    assert "s for 1 round\n" in out
    _, out, _ = call(capsys, "compare", *SMALL[:-1], "1", "-a", "fedavg")
    assert "6 clients, 1 round, one seed" in out
    _, out, _ = call(capsys, "compare", *SMALL[:-1], "2", "-a", "fedavg")
    assert "6 clients, 2 rounds, one seed" in out


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


def test_a_figure_of_a_kind_that_is_not_drawn_is_refused(capsys, tmp_path):
    code, _, err = call(capsys, "inspect", "--clients", "4", "--out", "split.gif", "--export", "split.json")
    assert code == 2
    assert "split.gif ends in .gif; allowed for a figure: .png, .svg, .pdf, or no ending" in err
    assert not list(tmp_path.glob("split*"))
    assert call(capsys, "inspect", "--clients", "4", "--out", "split.pdf")[0] == 0
    assert {path.name for path in tmp_path.glob("split*")} == {"split.png", "split.pdf"}


def test_folders_name_the_classes_of_a_result(capsys, tmp_path):
    for part in ("train", "test"):
        for number, name in enumerate(("cat", "dog")):
            (tmp_path / "pets" / part / name).mkdir(parents=True)
            for copy in range(4):
                picture = Image.new("RGB", (8, 8), (200 * number, copy, 0))
                picture.save(tmp_path / "pets" / part / name / f"{copy}.png")
    arguments = ["run", "--dataset", "folder:pets", "--model", "mlp", "--clients", "2", "--rounds", "1"]
    code, out, _ = call(capsys, *arguments, "--partition", "iid")
    assert code == 0
    assert re.search(r"^% per class        cat \d+\.\d\d, dog \d+\.\d\d$", out, re.M)


def test_inspect_of_many_classes_says_what_it_leaves_out(capsys, tmp_path):
    labels = np.arange(1200) % 60
    arrays = {"x_train": np.zeros((1200, 2), np.float32), "y_train": labels}
    np.savez("sixty.npz", **arrays, x_test=arrays["x_train"][:60], y_test=labels[:60])
    command = ["inspect", "--dataset", "npz:sixty.npz", "--clients", "3", "--partition", "dirichlet:1"]
    card = json.loads(call(capsys, *command, "--json")[1])
    _, out, _ = call(capsys, *command)
    lines = [line.split("  ") for line in out.splitlines() if re.match(r"[012] ", line)]
    shown = [[word.strip() for word in line if word.strip()] for line in lines]
    for k, (client, size, missing, frequent) in enumerate(shown):
        assert (client, size, missing) == (str(k), str(card["sizes"][k]), str(len(card["missing"][k])))
        first = [int(n) for n in re.findall(r"\((\d+)\)", frequent)]
        assert first == sorted(card["counts"][k], reverse=True)[:5]
    assert len(shown) == 3
    assert "of 60 classes (--json" in out


def test_the_store_from_the_command_line(capsys, tmp_path, monkeypatch):
    assert f"there are no runs in {tmp_path / 'runs'}" in call(capsys, "runs")[1]
    monkeypatch.setenv("FEDSKEW_RUNS", str(tmp_path / "mine"))
    call(capsys, "run", *SMALL)
    listed = json.loads(call(capsys, "runs", "list", "--json")[1])
    assert [row["state"] for row in listed] == ["done"]
    name = listed[0]["hash"]
    assert name[:8] in call(capsys, "runs")[1]
    shown = call(capsys, "runs", "show", name[:6])[1]
    assert name in shown
    assert re.search(r"^accuracy +0\.\d{1,4}$", shown, re.M)
    assert re.search(r"^session +from_round 0, fedskew ", shown, re.M)
    assert not set("{}[]") & set(shown)
    (tmp_path / "mine" / name / "run.json").write_text("{}")
    assert json.loads(call(capsys, "runs", "list", "--json")[1])[0]["state"] == "unreadable"
    assert json.loads(call(capsys, "runs", "remove", name[:6], "--json")[1]) == {"removed": [name]}
    assert not (tmp_path / "mine" / name).exists()


def test_runs_that_no_version_like_this_one_reads_are_said_once(capsys):
    for seed in ("0", "1", "2"):
        call(capsys, "run", *SMALL, "--seed", seed)
    for file in Path("runs").glob("*/run.json"):
        file.write_text('{"format": 0}')
    code, out, err = call(capsys, "runs")
    assert code == 0
    assert out.startswith("run")  # no line says what runs have in common that nobody can read
    assert err.count("is in store format 0") == 1
    assert "(2 other runs likewise)" in err.replace("\n", " ")


def test_export_for_plain_pytorch(capsys, tmp_path):
    import torch
    from safetensors.torch import load_file

    from fedskew import load_model
    from fedskew.simulation.plan import build_federation

    result = json.loads(call(capsys, "run", *SMALL, "--json")[1])
    code, out, _ = call(capsys, "export", result["run_hash"][:8], "model.safetensors")
    assert "where its metadata have a mean and std; `fedskew.load_model` does that by itself" in out
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
    out, err = done.communicate(timeout=PATIENCE)
    assert (done.returncode, err) == (0, "")
    assert "there are no runs in" in out
    assert __version__


def test_an_interruption_that_python_swallowed_is_noticed_after_the_round(capsys, monkeypatch):
    from fedskew.simulation.session import simulate

    def swallowing(run, probes, store):
        for record in simulate(run, probes, store=store):
            if record.round == 3:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            yield record

    monkeypatch.setattr("fedskew.simulation.session.simulate", swallowing)
    code, _, err = call(capsys, "run", *SMALL)
    assert code == 130
    assert "the same command resumes" in err
    assert Path("runs").exists()
    listed = json.loads(call(capsys, "runs", "list", "--json")[1])
    assert listed[0]["progress"] == "3/6"


def test_so_it_is_between_the_rounds_of_a_comparison(capsys, monkeypatch):
    def swallowing(run, record):
        if record.round == 3:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(tracking, "Several", lambda _: swallowing)
    assert call(capsys, "compare", "-a", "fedavg,fedlc", *SMALL)[0] == 130
    (row,) = json.loads(call(capsys, "runs", "list", "--json")[1])
    assert row["progress"] == "3/6"


def test_an_interruption_before_the_first_round_keeps_nothing(capsys, monkeypatch):
    from fedskew.simulation.simulation import advance

    def interrupted(simulations, probes=()):
        return signal.raise_signal(signal.SIGINT) if simulations[0].round == last[0] else advance(simulations, probes)

    monkeypatch.setattr("fedskew.simulation.session.advance", interrupted)
    last = [0]
    for last[0], said in ((0, "no round was finished"), (2, "finished work is kept, the same command resumes")):
        for command in (["compare", "-a", "fedavg"], ["run"]):
            assert call(capsys, *command, *SMALL, "-q")[::2] == (130, f"fedskew: interrupted; {said}\n")


def test_an_interruption_before_there_is_a_command(capsys, monkeypatch):
    monkeypatch.setattr("typer.main.get_command", lambda app: signal.raise_signal(signal.SIGINT))
    code, _, err = call(capsys, "run", *SMALL)
    assert code == 130
    assert "interrupted" in err


def test_a_diverged_run_is_no_figure_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "run", "--lr", "1e30", "--rounds", "3", "-q")
    assert code == 1
    assert out.split()[0] == "diverged"


def test_a_diverged_run_ends_with_a_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--lr", "1e30", "--rounds", "3"]
    code, out, _ = call(capsys, *command)
    assert code == 1
    assert re.search(r"diverged in round \d: the model gives no finite numbers; try a smaller lr", out)
    code, out, _ = call(capsys, *command, "--json")
    assert (code, json.loads(out)["diverged"]) == (1, True)


def test_a_run_that_is_no_better_than_guessing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = "no better than guessing, whose balanced accuracy on this test set is up to 13.18 %; try "
    for lr in ("100", "100", "1e-7"):  # the second time it is read from the store
        code, out, _ = call(capsys, "run", "--lr", lr, "--rounds", "5")
        assert code == 0
        assert f"{said}another lr, or more rounds" in out
    for fine in (["--lr", "0.1", "--rounds", "5"], ["--lr", "1e30", "--rounds", "5"]):
        assert said not in call(capsys, "run", *fine)[1]


def test_a_part_of_ones_own_is_looked_at_before_the_learning_rate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """If the run diverges in its first round."""
    own = tmp_path / "mine.py"
    own.write_text(
        "from fedskew import cross_entropy\n\n\ndef steep(logits, labels, counts):\n"
        "    return 1e30 * cross_entropy(logits, labels, counts)\n"
    )
    said = "diverged in round 1: the model gives no finite numbers; "
    code, out, _ = call(capsys, "run", "--rounds", "3", "--algorithm", f"{own}:steep+fedprox")
    assert code == 1
    assert f"{said}look at this run's own algorithm first, then try a smaller lr\n" in out
    assert f"{said}try a smaller lr\n" in call(capsys, "run", "--rounds", "3", "--lr", "1e30")[1]


def test_a_users_file_may_change_while_it_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Rounds that are done stay under the file's content at the start."""
    own = tmp_path / "mine.py"
    own.write_text(
        "from pathlib import Path\nfrom fedskew import Algorithm\nfrom fedskew.losses import cross_entropy\n\n\n"
        "def loss(logits, labels, counts):\n"
        "    Path(__file__).write_text(Path(__file__).read_text() + '# changed')\n"
        "    return cross_entropy(logits, labels, counts)\n\n\n"
        "def method():\n    return Algorithm('mine', loss=loss)\n"
    )
    code, out, err = call(capsys, "run", "-a", f"{own}:method", "--rounds", "2", "-q")
    assert (code, err) == (0, ""), err
    assert out.split()[0] != "diverged"


def test_a_shorter_run_of_one_that_was_interrupted_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    for record in simulate(Run(rounds=40), store="runs"):
        if record.round == 2:
            break
    call(capsys, "run", "--rounds", "4", "-q")
    _, out, _ = call(capsys, "runs", "--json")
    (listed,) = json.loads(out)
    assert (listed["progress"], listed["state"]) == ("4/4", "done")
    (entry,), _ = read_entries(Store("runs"))
    assert (entry.run["rounds"], entry.state) == (4, "done")
