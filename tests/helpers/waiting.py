"""Waiting for other processes: on what they do, never for a time."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0
"""Seconds after which a hang is a failure. Nothing else hangs on it: on a busy machine tests are slower, no more."""


def wait_until(so: Callable[[], bool], process: "subprocess.Popen[str] | None" = None) -> None:
    """Until it is so; a process that ends before is a failure that says what it printed."""
    deadline = time.monotonic() + PATIENCE
    while not so():
        if process is not None and process.poll() is not None:
            assert so(), process.communicate()
            return
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def has_lines(path: Path, number: int = 1) -> bool:
    """Whether a file that another process is writing has so many whole lines."""
    return path.exists() and path.read_bytes().count(b"\n") >= number
