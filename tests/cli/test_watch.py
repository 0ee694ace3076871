"""The dashboard, drawn into text."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from fedskew.cli.terminal.watch import Board, bar, blocks, span, sparkline, watching
from fedskew.core.round import Server
from fedskew.simulation.records import RoundRecord

COMPUTED = Server({}, {}, {}, {})


def record(round, accuracy=0.5, classes=(0.25, 0.75, None), diverged=False, server=COMPUTED, **probes):
    return RoundRecord(round=round, accuracy=accuracy, balanced_accuracy=accuracy, loss=1.0, client_accuracy=None,
                       per_class_accuracy=None if accuracy is None else list(classes), train_loss=0.125, clients=3,
                       seconds=0.1, engine="serial", device="cpu", diverged=diverged, probes=probes,
                       server=server)  # fmt: skip


def drawn(board, width=100, height=40):
    screen = Console(file=io.StringIO(), width=width, height=height)
    screen.print(board)
    return screen.file.getvalue()


def test_a_board_shows_accuracy_classes_drift_and_time_left():
    board = Board("fedlc on digits", 10)
    for k in range(1, 5):
        board.add(record(k, 0.1 * k, drift_norm=1.0 / k, drift_cosine=0.5), now=2.0 * k)
    board.add(record(5, None), now=10.0)
    text = drawn(board)
    assert "fedlc on digits" in text
    assert "round 5 of 10" in text
    assert "10 s left" in text
    assert "40.00 %" in text
    assert "best 40.00 %" in text
    assert "class 1   75.00 %" in text
    assert "class 2       - %" in text
    assert "0.25" in text
    assert "serial on cpu" in text


@pytest.mark.parametrize(("width", "height"), [(40, 12), (60, 16), (200, 60)])
@pytest.mark.parametrize("classes", [1, 10, 200])
def test_it_fits_the_terminal(width, height, classes):
    board = Board("a title that is long enough to be cut on a narrow screen, run 0123456789abcdef", 1000)
    for k in range(1, 600):
        board.add(record(k, 0.5, [0.5] * classes, drift_norm=1.0), now=float(k))
    lines = drawn(board, width, height).splitlines()
    assert max(map(len, lines)) <= width - len("^C")
    assert len(lines) <= height + 4 * (classes > width)


def test_nothing_seen_and_a_divergence_can_be_drawn():
    board = Board("t", 3)
    assert "round 0 of 3" in drawn(board)
    board.add(record(1, None, diverged=True), now=0.0)
    assert "diverged" in drawn(board)


def test_rounds_from_the_store_say_nothing_of_the_pace():
    board = Board("t", 30)
    for k in range(1, 11):
        board.add(record(k, server=None), now=0.0)
    assert board.seconds_left() is None
    for k in range(11, 21):
        board.add(record(k), now=3.0 * (k - 10))
    assert board.seconds_left() == 30


def test_lines_of_blocks():
    assert sparkline([], 8) == ""
    assert sparkline([0.0, 1.0], 8) == "▁█"
    assert sparkline([3.0, 3.0], 8) == "▁▁"
    assert len(sparkline([float(k) for k in range(1001)], 30)) == 30
    assert blocks([0, 0.5, 1], 0, 1) == "▁▅█"
    assert bar(0.5, 4) == "██░░"
    assert [span(s) for s in (None, 5.2, 65, 7300)] == ["-", "5 s", "1:05 min", "2:01 h"]


def test_without_a_terminal_nothing_is_drawn(capsys):
    with watching("t", 3, enabled=True) as step:
        step("fedavg", record(1))
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_in_a_terminal_it_is_drawn_and_leaves_the_result(tmp_path):
    import pty

    outer, inner = pty.openpty()
    command = ["run", "--dataset", "synthetic:1,1,max_size=60", "--clients", "4", "--rounds", "5", "--watch"]
    with subprocess.Popen(
        [sys.executable, "-m", "fedskew", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=inner,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    ) as done:
        os.close(inner)
        seen = b""
        while piece := _read(outer):
            seen += piece
        out = done.communicate()[0]
    os.close(outer)
    assert done.returncode == 0
    assert "drift cosine" in seen.decode()
    assert "balanced accuracy" in out
    assert "drift cosine" not in out


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side has gone
        return b""
