"""What commands say so that a reader knows what to do next."""

from pathlib import Path

import pytest

from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

SMALL = ["--dataset", "synthetic:1,1,max_size=100", "--clients", "6", "--batch-size", "16", "--rounds", "6"]


def test_compare_says_why_there_is_no_verdict(capsys):
    methods = [*SMALL, "--algorithm", "fedlc:tau=1,fedrs"]
    none = "no verdicts: fedavg is not among the methods; `--baseline fedlc:tau=1` judges against fedlc:tau=1\n"
    few = "one seed decides nothing; three can: `--seeds 3`\n"
    out = call(capsys, "compare", *methods)[1]
    assert none in out
    assert few in out
    out = call(capsys, "compare", *methods, "--baseline", "fedlc:tau=1", "--seeds", "2")[1]
    assert "no verdicts" not in out
    assert few.replace("one seed decides", "two seeds decide") in out
    for more in (["--quiet"], ["--json"]):
        out = call(capsys, "compare", *methods, *more)[1]
        assert "no verdicts" not in out
        assert "decides nothing" not in out
    out = call(capsys, "compare", *methods, "--algorithm", "fedavg", "--seeds", "3")[1]
    assert "no verdicts" not in out
    assert "nothing;" not in out
    assert "differences are points of accuracy, with the 95 % interval over seeds" in out
    assert ("open: it contains zero" in out) == ("is open," in out)
    out = call(capsys, "compare", *SMALL, "--algorithm", "fedlc")[1]
    assert "interval" not in out
    assert "no verdicts: fedavg is not among the methods\n" in out
    assert "nothing;" not in out


def test_commands_to_copy_name_a_store_that_is_not_the_default(capsys, monkeypatch):
    asked, elsewhere = ["run", *SMALL, "--algorithm", "fedlc"], ["--runs", "my runs"]
    assert ", fedskew report --runs 'my runs'\n" in call(capsys, *asked, *elsewhere)[1]
    (folder,) = Path("my runs").iterdir()
    for name in ("records.jsonl", "checkpoint.safetensors"):
        (folder / name).write_text("?\n")
        for command in (asked, ["diagnose", folder.name]):
            removing = f"`fedskew runs remove {folder.name} --runs 'my runs'` starts over\n"
            assert removing in err_of(capsys, *command, *elsewhere)
    unknown = ["export", "zz", "model.safetensors"]
    assert "`fedskew runs list --runs 'my runs'` shows" in err_of(capsys, *unknown, *elsewhere)
    monkeypatch.setenv("FEDSKEW_RUNS", "my runs")
    assert "`fedskew runs list` shows" in err_of(capsys, *unknown)
    assert f"`fedskew runs remove {folder.name}` starts over\n" in err_of(capsys, *asked)


def test_a_file_where_results_should_go_is_refused_before_any_work(capsys):
    Path("notes.txt").touch()
    methods = [*SMALL, "--algorithm", "fedavg,fedlc"]
    for out in ("notes.txt", "notes.txt/within"):
        for command in (["compare", *methods], ["sweep", *methods], ["tune", *methods, "--budget", "2"]):
            code, _, err = call(capsys, *command, "--out", out)
            assert (code, err.startswith("fedskew: notes.txt is a file; allowed: a folder")) == (2, True)
    assert not Path("runs").exists()
    assert call(capsys, "run", *SMALL, "--quiet")[0] == 0
    (folder,) = Path("runs").iterdir()
    for command in (["diagnose", folder.name, "--out"], ["report", "--figures"]):
        code, _, err = call(capsys, *command, "notes.txt")
        assert (code, err.startswith("fedskew: notes.txt is a file; allowed: a folder")) == (2, True)
    assert not (folder / "diagnosis.json").exists()


def test_several_values_for_a_command_that_takes_one(capsys):
    for command in ("run", "compare"):
        err = err_of(capsys, command, "--lr", "0.1,0.2")
        assert "'0.1,0.2' is not a valid float; `fedskew sweep` takes several values." in err
    assert "sweep" not in err_of(capsys, "compare", "--lr", "low")
    assert "sweep" not in err_of(capsys, "tune", "--budget", "1,2")
    Path("two.toml").write_text('algorithm = ["fedavg", "fedlc"]\n')
    assert "run takes one algorithm, not 2; fedskew compare takes several" in err_of(capsys, "run", "two.toml")


def test_without_data_files_the_folder_is_named(capsys):
    said = "no data files in elsewhere; `fedskew data fetch NAME` downloads some\n"
    assert call(capsys, "data", "verify", "--data-dir", "elsewhere")[:2] == (0, said)


def err_of(capsys, *arguments):
    return call(capsys, *arguments)[2]


def test_on_a_narrow_terminal_runs_name_the_method_beside_the_accuracy(capsys, monkeypatch):
    for method in ("fedavg", "fedlc:tau=1"):
        for more in ([], ["--lr", "0.2", "--momentum", "0.5", "--weight-decay", "0.1", "--batch-size", "8"]):
            call(capsys, "run", *SMALL, "--algorithm", method, *more, "--quiet")
    monkeypatch.setenv("COLUMNS", "70")
    heads = [line.split() for line in call(capsys, "runs")[1].splitlines() if line.startswith("run ")]
    assert len(heads) > 1
    assert all(head[:2] == ["run", "method"] for head in heads)
