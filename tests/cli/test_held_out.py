"""Accuracy on held-out examples is shown wherever accuracy on the test set is, and nowhere without any."""

import csv
import json
from pathlib import Path

import pytest

from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

DIGITS = ["--dataset", "digits", "--clients", "3", "--rounds", "2", "--lr", "0.1", "--model", "logistic"]
COMPARE = ["compare", *DIGITS, "--algorithm", "fedavg,fedlc", "--seeds", "2"]
HEAD = "held out %"


def test_compare_and_the_report_show_it(capsys):
    document = json.loads(call(capsys, *COMPARE, "--validation", "0.2", "--json")[1])
    rows = document["rows"]
    for row in rows:
        hashes = document["runs"][row["method"]]
        runs = [json.loads(call(capsys, "runs", "show", hash, "--json")[1]) for hash in hashes]
        assert row["validation_accuracy"]["each"] == [run["validation_accuracy"] for run in runs]
        assert row["validation_accuracy"]["each"] != row["accuracy"]["each"]
    shown = [f"{100 * row['validation_accuracy']['mean']:.2f}" for row in rows]
    code, out, _ = call(capsys, *COMPARE, "--validation", "0.2")
    markdown = Path("comparison/table.md").read_text()
    lines = list(csv.DictReader(Path("comparison/table.csv").read_text().splitlines()))
    assert code == 0
    assert call(capsys, "report", "--out", "page.html", "--figures", "files")[0] == 0
    page = Path("page.html").read_text()
    (latex,), (results,) = Path("files").rglob("results.tex"), Path("files").rglob("results.csv")
    for text in (" ".join(out.split()), markdown, page, latex.read_text().replace(r"\%", "%")):
        assert HEAD in text or "held out (%)" in text
        assert all(mean in text for mean in shown)
    assert [float(line["validation_accuracy_mean"]) for line in lines] == [
        row["validation_accuracy"]["mean"] for row in rows
    ]
    assert "validation_accuracy_std" in results.read_text()
    assert "20 % of the training examples held out" in page


def test_a_run_says_it(capsys):
    out = call(capsys, "run", *DIGITS, "--validation", "0.2")[1]
    (line,) = [line for line in out.splitlines() if line.startswith("held out")]
    found = json.loads(call(capsys, "run", *DIGITS, "--validation", "0.2", "--json")[1])
    assert f"{100 * found['validation_accuracy']:.2f} %" in line


def test_there_is_no_empty_column(capsys):
    out = call(capsys, *COMPARE)[1]
    call(capsys, "report", "--out", "page.html")
    for text in (out, Path("comparison/table.md").read_text(), Path("page.html").read_text()):
        assert "held out" not in text
