"""`fedskew report` on the command line."""

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest

from fedskew.cli.shown_as import display_names
from tests.cli import calling
from tests.report.page_store import example_store, write_run


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    return partial(calling.call, capsys, "report")


def test_all_runs(call, tmp_path):
    example_store(tmp_path / "runs")
    code, out, _ = call("-o", "deep/report.html")
    assert code == 0
    assert "report of 9 runs" in out
    assert out.endswith(": deep/report.html; open it in a browser\n")
    assert (tmp_path / "deep/report.html").read_text().startswith("<!DOCTYPE html>")
    assert call("--quiet")[1] == "report.html\n"


def test_some_runs_as_json(call, tmp_path):
    example_store(tmp_path / "store")
    code, out, _ = call("00", "10", "0000", "--runs", "store", "--json")
    assert code == 0
    shown = json.loads(out)
    assert shown["runs"] == ["0" * 16, "10" + "0" * 14]
    assert shown["federations"] == [{"title": "digits", "methods": ["fedavg", "fedlc"], "names": ["fedavg", "fedlc"]}]
    assert shown["left_out"] == []
    assert shown["bytes"] == (tmp_path / "report.html").stat().st_size


def test_figures_and_tables_beside_it(call, tmp_path):
    store = example_store(tmp_path / "runs")
    write_run(store, "x", title="other / name", dataset="other")
    code, out, _ = call("--figures", "figures", "--json")
    assert code == 0
    files = json.loads(out)["files"]
    for name in ("accuracy.png", "accuracy.pdf", "partition.pdf", "results.csv", "results.tex", "runs.csv"):
        assert f"figures/1-digits/{name}" in files
        assert f"figures/2-other-name/{name}" in files
    assert (tmp_path / "figures/1-digits/accuracy.pdf").read_bytes().startswith(b"%PDF")


def write_larger(store):
    """A comparison of more methods than the example's, which comes first."""
    return [
        write_run(store, f"x{m}{seed}", title="another", dataset="another", algorithm=method, seed=seed)
        for m, method in enumerate(("fedavg", "fedlc", "fedprox", "fedrs"))
        for seed in range(3)
    ]


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_figures_of_an_earlier_report_go_and_other_files_stay(call, tmp_path):
    store = example_store(tmp_path / "runs")
    figures = tmp_path / "figures"
    assert call("--figures", "figures")[0] == 0
    first = files_in(figures)
    assert "overview.tex" not in first
    (figures / "mine.txt").write_text("mine")
    larger = write_larger(store)
    assert call("--figures", "figures")[0] == 0
    assert {path.name for path in figures.iterdir()} == {
        ".fedskew-report.json", "1-another", "2-digits", "mine.txt", "overview.tex"
    }  # fmt: skip
    (figures / "1-another" / "notes.md").write_text("mine")
    (figures / "2-digits" / "results.tex").write_text("edited")
    for folder in larger:
        store.remove(folder)
    code, _, noted = call("--figures", "figures")
    assert code == 0
    assert "figures/2-digits/results.tex was changed since" in " ".join(noted.split())
    mine = ["mine.txt", "1-another/notes.md", "2-digits/results.tex"]
    assert files_in(figures) == sorted([*first, *mine])
    (figures / "1-digits" / "results.tex").write_text("edited")
    (tmp_path / "report.html").unlink()
    code, _, problem = call("--figures", "figures")
    assert code == 2
    assert "figures/1-digits/results.tex would be lost" in " ".join(problem.split())
    assert not (tmp_path / "report.html").exists()


def test_an_interrupted_report_can_be_repeated(call, tmp_path, monkeypatch):
    store = example_store(tmp_path / "runs")
    larger = write_larger(store)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("fedskew.report.figures.rectangles", stop)
        assert call("--figures", "figures")[0] == 130
    assert "1-another/results.csv" in files_in(tmp_path / "figures")
    assert call("--figures", "figures")[0] == 0
    for folder in larger:
        store.remove(folder)
    assert call("--figures", "figures")[0] == 0
    assert not (tmp_path / "figures/1-another").exists()


def test_a_list_that_names_files_elsewhere_deletes_nothing(call, tmp_path):
    example_store(tmp_path / "runs")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/mine.txt").write_text("mine")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/link").symlink_to(tmp_path / "outside")
    digest = hashlib.sha256(b"mine").hexdigest()
    names = ["../mine.txt", str(tmp_path / "mine.txt"), "link/mine.txt"]
    listed = {"about": {}, "files": dict.fromkeys(names, digest)}
    (tmp_path / "figures/.fedskew-report.json").write_text(json.dumps(listed))
    assert call("--figures", "figures")[0] == 0
    assert (tmp_path / "mine.txt").exists()
    assert (tmp_path / "outside/mine.txt").exists()


def test_drawing_says_so(call, tmp_path):
    example_store(tmp_path / "runs")
    assert call("--figures", "figures")[2] == "drawing figures of 1 section to figures\n"
    assert call("--figures", "figures", "--quiet")[2] == ""
    assert call()[2] == ""


def test_no_run_is_an_error(call):
    code, _, problem = call()
    assert code == 2
    assert "there is no run to report in runs" in problem
    code, _, problem = call("3fa9")
    assert code == 2
    assert "there is no run '3fa9'" in problem


def test_damaged_runs_are_left_out_and_named(call, tmp_path):
    example_store(tmp_path / "runs")
    (tmp_path / "runs" / ("0" * 16) / "records.jsonl").write_text("?\n")
    code, out, note = call()
    assert code == 0
    assert "report of 8 runs" in out
    assert f"left out: run {'0' * 16} cannot be read" in note
    code, _, problem = call("000")
    assert code == 2
    assert "cannot be read" in problem
    for file in (tmp_path / "runs").glob("*/run.json"):
        file.write_text('{"format": 0}')
    code, _, problem = call()
    assert code == 2
    assert problem.count("is in store format 0") == 1
    assert "(7 other runs likewise)" in problem.replace("\n", " ")


def test_hints_name_a_store_that_is_not_the_default(call, tmp_path):
    store = example_store(tmp_path / "my runs")
    store.folder("0" * 16).write_diagnosis({"round": 3, "methods": {}})
    noted = " ".join(call("--runs", "my runs")[2].split())
    assert "`fedskew diagnose 00000000 --runs 'my runs'` measures round 20" in noted
    assert "--runs" in Path("report.html").read_text()
    (tmp_path / "my runs").rename(tmp_path / "runs")
    assert "`fedskew diagnose 00000000` measures round 20" in " ".join(call()[2].split())
    assert "--runs" not in Path("report.html").read_text()


def test_runs_that_hold_out_examples_are_left_out_and_counted(call, tmp_path):
    store = example_store(tmp_path / "runs")
    whole = sorted(folder.path.name for folder in store)
    for k in range(3):
        write_run(store, f"t{k}", validation=0.1 if k else 0.25, lr=0.2 + k, algorithm="fedlc")
    _, out, noted = call()
    assert "report of 9 runs" in out
    said = "3 runs that hold out training examples, as tries of fedskew tune do, are left out; "
    hint = "fedskew report --where validation=0.1"
    assert f"{said}`{hint}` (or 0.25) shows them" in " ".join(noted.split())
    assert f"{said}<code>{hint}</code> (or 0.25) shows them." in Path("report.html").read_text()

    def reported(*asked):
        document = json.loads(call(*asked, "--json")[1])
        return sorted(document["runs"]), sorted(document["held_out"])

    assert reported() == (whole, ["t0", "t1", "t2"])
    assert reported("--where", "algorithm=fedlc") == (whole[3:6], ["t0", "t1", "t2"])
    assert reported("--where", "validation=0.1") == (["t1", "t2"], [])
    assert reported("--where", " validation = 0") == (whole, [])
    assert reported("t1", "00") == ([whole[0], "t1"], [])
    assert reported("--where", "lr=2.2") == (["t2"], [])  # there are no others


def test_where_keeps_the_runs_that_are_listed(call, tmp_path, capsys):
    store = example_store(tmp_path / "runs")
    write_run(store, "x", algorithm="fedlc:tau=2,missing=mask", lr=0.5)
    for asked in (["algorithm=fedlc"], ["tau=2"], ["algorithm=fedlc", "lr=0.1"], ["seed=2"]):
        conditions = [word for text in asked for word in ("--where", text)]
        listed = calling.call(capsys, "runs", "list", "--quiet", *conditions)[1].split()
        assert 0 < len(listed) < 10
        assert sorted(json.loads(call(*conditions, "--json")[1])["runs"]) == sorted(listed)
    assert "report of 1 run," in call("00", "01", "--where", "seed=1")[1]
    code, _, problem = call("--where", "lr=7")
    assert code == 2
    assert "where is lr=7; none of the 10 runs matches" in problem
    code, _, problem = call("--where", "speed=7")
    assert code == 2
    assert "where names 'speed'; allowed: " in problem


def test_a_folder_is_no_file(call, tmp_path):
    example_store(tmp_path / "runs")
    code, _, problem = call("-o", "runs")
    assert code == 2
    assert "out is the folder runs" in problem


def test_a_page_of_somebody_else_is_not_replaced(call, tmp_path):
    example_store(tmp_path / "runs")
    (tmp_path / "report.html").write_text("<html>mine</html>")
    code, _, problem = call()
    assert code == 2
    assert "report.html would be lost" in problem
    assert (tmp_path / "report.html").read_text() == "<html>mine</html>"
    assert call("-o", "other.html")[0] == call("-o", "other.html")[0] == 0


def test_an_empty_file_is_replaced(call, tmp_path):
    example_store(tmp_path / "runs")
    (tmp_path / "report.html").touch()
    assert call()[0] == 0
    assert (tmp_path / "report.html").stat().st_size


def test_names_order_and_call_methods(call, tmp_path):
    example_store(tmp_path / "runs")
    code, out, _ = call("--name", "scaffold=SCAFFOLD (a=b)", "--name", "fedavg = FedAvg", "--json", "--figures", "f")
    assert code == 0
    (federation,) = json.loads(out)["federations"]
    assert "difference to FedAvg (points)" in Path("f/1-digits/results.tex").read_text()
    assert "last ten rounds − FedAvg, points" in Path("report.html").read_text()
    assert federation["methods"] == ["scaffold", "fedavg", "fedlc"]
    assert federation["names"] == ["SCAFFOLD (a=b)", "FedAvg", "fedlc"]


@pytest.mark.parametrize("name", ["fedlc", "fedlc=", "fedxx=Mine"])
def test_a_name_for_no_method_is_refused(call, tmp_path, name):
    example_store(tmp_path / "runs")
    code, _, problem = call("--name", name)
    assert code == 2
    assert f"name is '{name}'; allowed: METHOD=NAME with one of fedavg, fedlc, scaffold" in problem
    assert not (tmp_path / "report.html").exists()


def test_runs_that_are_named_come_in_their_order(call, tmp_path):
    example_store(tmp_path / "runs")
    _, out, _ = call("20", "10", "00", "--json")
    assert json.loads(out)["federations"][0]["methods"] == ["scaffold", "fedlc", "fedavg"]


def test_figures_for_a_paper(call, tmp_path):
    example_store(tmp_path / "runs")
    code, out, _ = call("--figures", "figures", "--style", "paper", "--json")
    assert code == 0
    drawn = [file for file in json.loads(out)["files"] if file.endswith((".png", ".pdf"))]
    assert drawn == [f"figures/1-digits/{name}.pdf" for name in ("accuracy", "balanced_accuracy", "partition")]
    code, _, problem = call("--style", "poster")
    assert code == 2
    assert "style is 'poster'; allowed: screen, paper" in problem


def test_no_two_methods_are_called_the_same() -> None:
    methods = {"fedavg", "fedlc", "fedprox"}
    assert display_names(["fedlc=fedavg", "fedavg=plain"], methods) == {"fedlc": "fedavg", "fedavg": "plain"}
    for given in (["fedlc=ours", "fedprox=ours"], ["fedlc=fedavg"]):
        with pytest.raises(ValueError, match="two methods would be called"):
            display_names(given, methods)
