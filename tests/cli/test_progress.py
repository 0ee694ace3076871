"""Progress where there is no terminal, and what time is said to have been spent."""

import os
import subprocess
import sys
from typing import Any

import pytest

from fedskew import Run, Store, simulate
from fedskew.cli.terminal.progress import Spent
from fedskew.progress import Lines, Within
from fedskew.simulation import RoundRecord

RUN = Run(clients=3, rounds=4, batch_size=64)


def records(tmp_path: Any) -> list[RoundRecord]:
    return list(simulate(RUN, store=Store(tmp_path)))


def test_a_line_every_half_minute_with_the_time_left(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 10.0, 20.0, 31.0, 62.0])
    lines = Lines(4, lambda: next(now))
    for record in records(tmp_path):
        lines("fedavg", record)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(";")[1].split(",")[0].strip() for line in said] == ["3 of 4 rounds", "4 of 4 rounds"]
    assert "round 3, accuracy" in said[0]
    assert "about 10 s left" in said[0]  # 31 seconds for 3 rounds, one is left


def test_rounds_read_from_the_store_say_nothing_of_the_pace(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    new = records(tmp_path)
    stored = records(tmp_path)
    now = iter([0.0, 100.0, 100.0, 100.0, 140.0])
    lines = Lines(4, lambda: next(now))
    for record in [*stored[:3], new[3]]:
        lines("fedavg", record)
    assert "about 0 s left" in capsys.readouterr().err.splitlines()[-1]


def test_the_pace_begins_anew_after_rounds_of_the_store(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    new = records(tmp_path)
    stored = records(tmp_path)
    now = iter([0.0, 10.0, 20.0, 20.0, 60.0])
    lines = Lines(5, lambda: next(now))
    for record in [*new[:2], stored[2], new[3]]:
        lines("fedavg", record)
    assert "about 40 s left" in capsys.readouterr().err.splitlines()[-1]


def test_how_much_of_a_round_is_done_is_said_of_long_rounds_only() -> None:
    now = iter([0.0, 0.1, 0.9, 5.0, 5.2, 6.5, 7.0])
    within = Within(lambda: next(now))
    assert [within(0.5), within(0.9)] == ["", ""]
    within.begin()
    assert [within(0.1), within(0.6), within(1.0)] == ["", "60 % of this round, ", ""]


def test_seconds_are_those_that_were_spent_now(tmp_path: Any) -> None:
    first, again = Spent(), Spent()
    for record in records(tmp_path):
        first.add(record)
    for record in records(tmp_path):
        again.add(record)
    assert (first.computed, first.stored, again.computed, again.stored) == (4, 0, 0, 4)
    assert first.seconds > 0
    assert again.seconds == 0
    assert str(again) == "from the store, nothing computed"
    assert str(first).endswith("s for 4 rounds")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "bar",
    [
        "from fedskew.progress import round_progress; bar = round_progress(1, enabled=True)",
        "from fedskew.cli.terminal.progress import byte_progress; bar = byte_progress('file', enabled=True)",
        "from fedskew.cli.terminal.watch import watching; bar = watching('run', 1, enabled=True)",
    ],
)
def test_results_go_to_a_file_also_while_a_bar_is_on_the_terminal(bar: str) -> None:
    """Rich draws what is printed beside a bar above it, on standard error, if it is not told otherwise."""
    reading, terminal = os.openpty()
    script = f"{bar}\nwith bar: print('a result')"
    try:
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=terminal, text=True,
                              env={**os.environ, "TERM": "xterm"})  # fmt: skip
    finally:
        os.close(terminal)
        os.close(reading)
    assert (done.returncode, done.stdout) == (0, "a result\n")
