"""What `fedskew paper show` prints of a table."""

import re
from pathlib import Path

import pytest

from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.runs.results import write_lines
from tests.cli.calling import call
from tests.paper.test_tables import result


def test_the_terminal_shows_the_papers_methods_with_verdicts_and_where_runs_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSKEW_RUNS", raising=False)
    methods = ("fedavg", "fedlc", "fedacg")
    choice = Choice(("cifar10/dirichlet:0.1",), methods, 3)
    rest = {"client_accuracy": None, "loss": 1.0, "per_class_accuracy": None, "engine": "serial"}
    reached = dict(zip(methods, (0.5, 0.6, 0.4), strict=True))
    runs = [(run, reached[run.short_algorithm]) for run in TABLES["table1"].runs(choice)]
    found = [result(run, value, algorithm=run.algorithm, seed=run.seed, **rest) for run, value in runs]
    write_lines(tmp_path / "some.jsonl", found)
    show = ("paper", "show", "table1", "--cells", "cifar10/dirichlet:0.1", "--results", str(tmp_path))
    out = call(capsys, *show)[1]
    assert "fedacg" not in out
    assert re.search(r"^fedlc +\+10.00 \[\+10.00, \+10.00\] above \(\+17.84\) *$", out, re.M)
    assert "Later methods were run too (1): `--methods all` shows them." in out
    assert f"Runs are in {tmp_path}/; `fedskew paper show table1 --profile stated --format csv` has" in out
    (tmp_path / "runs").mkdir()
    assert f"Runs are in runs/ and {tmp_path}/; " in call(capsys, *show)[1]
    everything = call(capsys, *show, "--methods", "all")[1]
    assert re.search(r"^fedacg +-10.00 \[-10.00, -10.00\] below *$", everything, re.M)
    assert "Later methods" not in everything
    for format in ("csv", "markdown", "latex", "json"):
        assert "fedacg" in call(capsys, *show, "--format", format)[1]
    assert "Runs are in" not in call(capsys, *show, "--quiet")[1]
