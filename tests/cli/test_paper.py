"""`fedskew paper` as a user types it, on stand-in data."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fedskew.paper import ITEMS, TABLES, run_figures
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.two_clients import two_clients
from fedskew.runs.results import write_lines
from fedskew.runs.store import Store
from tests.cli.test_cli import call
from tests.helpers.waiting import PATIENCE, wait_until
from tests.paper.test_tables import result

FEW = ("--stand-in", "--rounds", "2", "--seeds", "1")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


_measured_once = cache(two_clients)


@pytest.fixture
def _figure3_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 3 has no runs to keep and is measured whenever it is shown, for seconds; here it is shown three times."""
    monkeypatch.setattr(run_figures, "two_clients", _measured_once)


@pytest.mark.usefixtures("_figure3_once")
@pytest.mark.parametrize("item", ITEMS)
def test_every_table_and_figure_runs_to_its_end(item: str, capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--methods", "fedavg,fedlc") if item in ("table1", "table2", "table3", "table4", "table5", "table6") else ()
    code, out, err = call(capsys, "paper", "run", item, *FEW, *few, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["problems"] == []
    code, out, _ = call(capsys, "paper", "run", item, *FEW, *few, "--json")
    assert json.loads(out)["done"] == []  # nothing is repeated
    code, out, _ = call(capsys, "paper", "show", item, "--stand-in", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert rows
    if item.startswith("table"):
        assert any(row["ours"] and row["ours"]["shortened"] and row["ours"]["rounds"] == 2 for row in rows)
    else:
        code, out, _ = call(capsys, "paper", "show", item, "--stand-in", "--out", "drawn/it.png")
        assert code == 0
        assert Path("drawn/it.png").stat().st_size > 1000
        assert Path("drawn/it.svg").exists()
        code, out, _ = call(capsys, "paper", "show", item, "--stand-in")
        assert "STAND-IN" in out
        assert len(out.splitlines()) > 2


def test_list_names_everything_and_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "paper", "list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == list(ITEMS)
    assert all(row["done"] == 0 for row in rows)
    code, out, _ = call(capsys, "paper", "list")
    assert all(name in out for name in ITEMS)


def test_show_prints_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    cell = ("--cells", "cifar10/dirichlet:0.5", "--methods", "fedavg")
    call(capsys, "paper", "run", "table1", *FEW, *cell, "--quiet")
    for format, mark in (
        ("markdown", "| fedavg |"),
        ("latex", "\\toprule"),
        ("csv", "cell,method"),
        ("terminal", "fedavg"),
    ):
        code, out, _ = call(capsys, "paper", "show", "table1", "--stand-in", "--format", format, *cell)
        assert code == 0
        assert mark in out
        assert "2 rounds" in out.replace(",2,True", ",2 rounds")
    code, out, err = call(capsys, "paper", "show", "table1", "--format", "word")
    assert code == 2
    assert "allowed: terminal" in err


def test_the_map_from_nothing_to_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("paper", "map", "--stand-in", "--rounds", "2", "--taus", "1,5", "--out", "map.png")
    code, out, err = call(capsys, *arguments, "--json")
    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert shown["rows"]
    assert Path("map.png").exists()
    assert any(line.startswith("nothing changed:") for line in shown["summary"])
    assert len({row["hash"] for row in shown["rows"]}) == len(list(Path("runs").iterdir()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("paper", "run", "table8"), "unknown table or figure 'table8': did you mean table7"),
        (("paper", "run", "table1", "--cells", "cifar10/dirichlet:0.2"), "unknown cell"),
        (("paper", "run", "table1", "--methods", "fedlx"), "unknown method 'fedlx': did you mean fedlc"),
        (("paper", "run", "table1", "--profile", "tunned"), "did you mean tuned"),
        (("paper", "run", "table1", "--seeds", "0"), "seeds is 0"),
        (("paper", "run", "table1", "--rounds", "0"), "rounds is 0"),
        (("paper", "run", "table1", "--shard", "3/2"), "shard is '3/2'"),
        (("paper", "run", "table1", "--jobs", "0"), "jobs is 0; allowed: 1 to 256"),
        (("paper", "run", "table1", "--jobs", "257"), "jobs is 257; allowed: 1 to 256"),
        (("paper", "run", "all", "--cells", "cifar10"), "--cells and --methods are for one table or figure"),
        (("paper", "map", "--cell", "cifar10/dirichlet:9"), "unknown cell"),
        (("paper", "map", "--part", "all,around"), "part is"),
        (("paper", "map", "--taus", "one"), "taus is 'one'"),
        (("paper", "show", "figure2", "--out", "x.png"), "has not been measured yet"),
        (("paper", "show", "figure1", "--format", "csv"), "allowed for a figure"),
        (("paper", "run", "figure2", "--cells", "cifar1"), "unknown cell 'cifar1'"),
        (("paper", "run", "table1", "--rounds", "500"), "at most the paper's"),
        (("paper", "run", "table1", "--profile", "none.toml"), "there is no file none.toml"),
        (("paper", "show", "table1", "--results", "nowhere"), "there is no folder of results nowhere"),
        (("paper", "map", "--cell", "femnist"), "unknown cell 'femnist'"),
    ],
)
def test_a_wrong_request_is_a_line(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not out


def test_absent_data_are_named_with_the_way_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(
        capsys, "paper", "run", "table1", "--cells", "svhn", "--methods", "fedavg", "--seeds", "1", "--data-dir", "none"
    )
    assert code == 1
    assert "4 runs not done" in err
    assert "fedskew data fetch svhn" in err


def test_tuned_tries_then_the_runs_then_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--cells", "cifar10/dirichlet:0.5", "--methods", "fedlc", "--profile", "tuned", "--stand-in")
    code, out, _ = call(capsys, "paper", "run", "table1", *chosen, "--rounds", "3", "--seeds", "2", "--json")
    assert code == 0
    assert len(json.loads(out)["done"]) == 4 + 2
    call(capsys, "paper", "run", "table1", *chosen, "--rounds", "2", "--seeds", "1", "--quiet")
    for rounds, given in ((3, ()), (2, ("--rounds", "2"))):
        code, out, _ = call(capsys, "paper", "show", "table1", *chosen, *given, "--json")
        (row,) = json.loads(out)["rows"]
        assert row["ours"]["rounds"] == rounds


def test_shares_of_a_two_step_item_say_when_they_wait(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--cells", "cifar10/dirichlet:0.5", "--methods", "fedlc", "--profile", "tuned", "--stand-in")
    few = (*chosen, "--rounds", "2", "--seeds", "1", "--quiet")
    codes = [call(capsys, "paper", "run", "table1", *few, "--shard", f"{k}/2")[0] for k in (1, 2, 1, 2)]
    assert codes[-1] == 0
    assert len(list(Path("runs").iterdir())) == 5


def test_a_figure_is_measured_again_on_a_longer_run(capsys: pytest.CaptureFixture[str]) -> None:
    for rounds in ("2", "4"):
        call(capsys, "paper", "run", "figure6", "--stand-in", "--rounds", rounds, "--quiet")
        (row,) = json.loads(call(capsys, "paper", "show", "figure6", "--stand-in", "--json")[1])["rows"]
        assert row["rounds"] == row["measured"]["fedavg"]["round"] == int(rounds)


INTERRUPTED = """
import signal, sys
from pathlib import Path
from fedskew.cli import main
from fedskew.simulation import execute

begun, simulate_many = [], execute.simulate_many

def watched(runs, store):
    begun.append(runs)
    for position, record in simulate_many(runs, store=store):
        yield position, record
        if len(begun) == 3 and record.round == 2:
            Path("waits").touch()
            signal.pause()

execute.simulate_many = watched
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_and_again_repeats_no_finished_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs are done, the third is at its second round, when a process gets the signal."""
    chosen = ["--cells", "cifar10", "--methods", "fedavg,fedlc", "--seeds", "1", "--rounds", "3", "--stand-in"]
    command = ["paper", "run", "table1", *chosen]
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: Path("waits").exists(), process)
    process.send_signal(signal.SIGINT)
    first, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted" in said
    assert len(first.splitlines()) == 2
    code, again, _ = call(capsys, *command)
    assert code == 0
    hashes = [line.split()[-1] for text in (first, again) for line in text.splitlines()]
    assert len(hashes) == len(set(hashes)) == 8


def test_hints_name_the_same_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is copied from a hint is about the runs that were asked for, not about the paper's data."""
    few = ("--cells", "m=10", "--methods", "fedavg", "--stand-in", "--profile", "usual", "--runs", "my runs")
    shown = ("paper", "show", "table6", "--methods", "fedavg", *few[4:])
    again = "--profile usual --stand-in --runs 'my runs'"
    assert call(capsys, *shown)[1].endswith(f"`fedskew paper run table6 {again}` runs it.\n")
    done = call(capsys, "paper", "run", "table6", *few, "--rounds", "2", "--seeds", "1")[1]
    last = done.splitlines()[-1]
    assert any(last.endswith(f", {folder.name[:8]}") for folder in Path("my runs").iterdir())
    assert f"`fedskew paper run table6 {again}` does those that are missing." in call(capsys, *shown)[1]
    out = call(capsys, "paper", "run", "table6", *few, "--rounds", "2", "--seeds", "1")[1]
    assert out == f"nothing left to do; `fedskew paper show table6 {again}` shows it\n"
    figure = ("paper", "show", "figure2", *few[4:])
    assert f"`fedskew paper run figure2 {again}` runs it.\n" in call(capsys, *figure)[1]
    call(capsys, "paper", "run", "figure2", *few[4:], "--rounds", "2", "--quiet")
    assert f"`fedskew paper show figure2 {again} --out figure2.png` draws it\n" in call(capsys, *figure)[1]


def test_what_is_said_of_runs_tells_local_epochs_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedskew.progress._EVERY", 0)
    few = ("paper", "run", "table5", "--methods", "fedavg", "--rounds", "1", "--seeds", "1", "--cells")
    code, out, err = call(capsys, *few, "cifar10/dirichlet:0.5", "--stand-in")
    assert code == 0
    done = re.findall(r"%  fedavg  digits dirichlet:0.5, 10 clients(.*), seed 0, 1 round, ", out)
    assert done == ["", ", 5 local epochs", ", 10 local epochs", ", 20 local epochs"]
    assert "fedavg digits dirichlet:0.5, 10 clients, 5 local epochs, round 1" in err
    err = call(capsys, *few, "E=5/cifar10/dirichlet:0.5", "--data-dir", "none")[2]
    assert "1 run not done (cifar10 dirichlet:0.5, 10 clients, 5 local epochs): " in err


JOBS = ["--cells", "cifar10/dirichlet:0.1,cifar10/dirichlet:0.5", "--methods", "fedavg,fedlc", "--seeds", "2"]
HELD = """
import os, signal
from pathlib import Path
from fedskew import Algorithm
from fedskew.losses import cross_entropy


def loss(logits, labels, counts):
    if Path("hold").exists():
        Path(f"waits{os.getpid()}").touch()
        signal.pause()
    return cross_entropy(logits, labels, counts)


def method():
    return Algorithm("held", loss=loss)
"""


def test_jobs_do_what_one_process_does(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paper", "run", "table1", *JOBS, "--rounds", "2", "--stand-in"]
    code, out, err = call(capsys, *command, "--jobs", "2", "--runs", "two")
    assert code == 0
    assert "8 runs, 2 at a time; one after another on cpu: no estimate, since no such run has finished there yet" in err
    seeds = [line.partition("seed ")[2][0] for line in out.splitlines()]
    assert seeds.index("1") >= 3  # the first seed of everything was begun before
    assert call(capsys, *command, "--quiet")[0] == 0
    records = [
        {folder.path.name: [(r["round"], r["accuracy"]) for r in folder.records()] for folder in Store(store)}
        for store in ("two", "runs")
    ]
    assert len(records[0]) == 8
    assert records[0] == records[1]
    code, out, _ = call(capsys, *command, "--jobs", "2", "--runs", "two", "--json")
    assert (code, json.loads(out)["done"]) == (0, [])


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_the_jobs_and_again_repeats_no_finished_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two runs are done and each of the two processes is in another one when the parent gets the signal."""
    Path("held.py").write_text(HELD)
    Path("held.toml").write_text("[methods]\nfedlc = 'held.py:method'\n")
    Path("hold").touch()
    command = ["paper", "run", "table1", *JOBS, "--rounds", "2", "--profile", "held.toml", "--stand-in", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedskew", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list(tmp_path.glob("waits*"))) == 2, process)
    process.send_signal(signal.SIGINT)
    first, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted" in said
    assert len(first.splitlines()) == 2
    Path("hold").unlink()
    for waited in tmp_path.glob("waits*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(waited.name.removeprefix("waits")), 0)
    code, again, _ = call(capsys, *command)
    assert code == 0
    hashes = [line.split()[-1] for text in (first, again) for line in text.splitlines()]
    assert len(hashes) == len(set(hashes)) == 8


def test_a_process_that_dies_takes_one_run_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("dies.py").write_text(HELD.replace("signal.pause()", "os._exit(7)"))
    Path("hold").touch()
    Path("dies.toml").write_text("[methods]\nfedlc = 'dies.py:method'\n")
    command = ["paper", "run", "table1", *JOBS, "--rounds", "1", "--profile", "dies.toml", "--stand-in", "--jobs", "2"]
    code, out, err = call(capsys, *command)
    assert code == 1
    assert "4 runs not done" in err
    assert "the process that did it ended with 7" in err
    assert len(out.splitlines()) == 4


def test_runs_condense_keeps_finished_runs(capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "run", "--dataset", "digits", "--rounds", "2", "--clients", "4", "--quiet")
    code, out, _ = call(capsys, "runs", "condense", "kept.jsonl", "--json")
    assert code == 0
    assert json.loads(out) == {"file": "kept.jsonl", "added": 1, "lines": 1, "left_out": []}


def test_show_far_from_published_results_says_that_there_are_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "paper", "show", "table4")
    clone = "there is no results/paper here; published results are in a clone of the repository: --results names them"
    assert (code, err) == (0, f"fedskew: note: {clone}\n")
    assert "None of this is in the store or among the published results." in out
    assert out.endswith("`fedskew paper run table4 --profile stated` runs it.\n")
    code, out, err = call(capsys, "paper", "list")
    assert clone in err
    assert re.search(r"^table1 .* no estimate *$", out, re.M)
    assert out.endswith("there or published; no estimate: no such run on this device yet\n")


def publish(folder: Path, profile: str, precision: str, seeds: int = 1) -> None:
    choice = Choice(("m=10",), ("fedavg", "fedlc"), seeds, profile=PROFILES[profile], fields={"precision": precision})
    rest = {"client_accuracy": None, "loss": 1.0, "per_class_accuracy": None, "engine": "serial"}
    found = [result(run, algorithm=run.algorithm, seed=run.seed, **rest) for run in TABLES["table6"].runs(choice)]
    write_lines(folder / f"{profile}_{precision}.jsonl", found)


def test_list_and_show_do_not_hide_other_profiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    publish(tmp_path, "usual", "bf16")
    there = ("--results", str(tmp_path))
    rows = json.loads(call(capsys, "paper", "list", *there, "--json")[1])
    known = [(row["profile"], row["precision"], row["done"]) for row in rows if row["name"] == "table6"]
    assert known == [("stated", "fp32", 0), ("usual", "bf16", 2)]
    assert [row["profile"] for row in rows if row["name"] == "table3"] == ["stated"]
    one = json.loads(call(capsys, "paper", "list", *there, "--profile", "usual", "--json")[1])
    assert [row["name"] for row in one] == list(ITEMS)
    code, _, err = call(capsys, "paper", "show", "table6", *there)
    assert (code, err) == (0, "fedskew: note: 2 more results with --profile usual\n")
    publish(tmp_path, "stated", "bf16")
    assert call(capsys, "paper", "show", "table6", *there)[2] == ""


def test_show_takes_later_methods_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("table1", "--stand-in", "--cells", "cifar10/dirichlet:0.5", "--methods", "fedavg,fedlc:travel=1")
    assert call(capsys, "paper", "run", *asked, "--seeds", "1", "--rounds", "1")[0] == 0
    code, out, _ = call(capsys, "paper", "show", *asked, "--format", "csv")
    assert code == 0
    assert [line.split(",")[1] for line in out.splitlines()] == ["method", "fedavg", "fedlc:travel=1"]
    assert call(capsys, "paper", "show", *asked, "--profile", "tuned")[0] == 0  # which has no later methods


def test_list_counts_runs_of_one_arithmetic(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    publish(tmp_path, "stated", "bf16", seeds=2)
    publish(tmp_path, "stated", "fp32")

    def done(*options: str) -> tuple[str, int]:
        rows = json.loads(call(capsys, "paper", "list", "--results", str(tmp_path), "--json", *options)[1])
        (row,) = [row for row in rows if row["name"] == "table6"]
        return row["precision"], row["done"]

    assert done() == ("bf16", 4)
    assert done("--precision", "fp32") == ("fp32", 2)


def test_extend_does_what_a_table_lacks_and_counts_published_runs(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("table1", "--cells", "cifar10/dirichlet:0.5", "--methods", "fedavg,fedlc", "--stand-in")
    call(capsys, "paper", "run", *few, "--rounds", "2", "--seeds", "1", "--quiet", "--runs", "first")
    call(capsys, "runs", "condense", "published/x.jsonl", "--runs", "first")
    again = ("paper", "run", *few, "--extend", "--seeds", "2", "--results", "published", "--runs", "second", "--json")
    code, out, _ = call(capsys, *again)
    assert code == 0
    assert len(json.loads(out)["done"]) == 2  # the second seed of both; `--rounds` is the published runs'
    assert {run["seed"] for run in json.loads(call(capsys, "runs", "--runs", "second", "--json")[1])} == {1}
    assert json.loads(call(capsys, *again)[1])["done"] == []


def test_a_share_of_what_a_table_lacks_waits_for_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--cells", "cifar10/dirichlet:0.5", "--methods", "fedavg,fedprox", "--stand-in", "--rounds", "1")
    extend = ("paper", "run", "table1", *few, "--extend", "--seeds", "2", "--json")
    codes, seeds = [], []
    for shard in ("2/2", "1/2", "2/2"):  # FedProx, FedAvg, FedProx
        code, out, err = call(capsys, *extend, "--shard", shard)
        codes.append(code)
        seeds.append(len(json.loads(out)["done"]))
        assert ("the next runs depend on runs that are not in this store yet" in err) == bool(code)
    assert (codes, seeds) == ([1, 1, 0], [1, 2, 1])


def test_words_that_do_not_go_with_extend_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "paper", "run", "table1", "--within", "3")
    assert code == 2
    assert "within is 3.0; allowed with --extend only" in err
    code, _, err = call(capsys, "paper", "run", "figure1", "--extend")
    assert code == 2
    assert "item is 'figure1'; allowed with --extend: table1" in err
