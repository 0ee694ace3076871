"""The table that a benchmark prints and the file that it leaves."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import Figure


class Neighbours:
    """How much of the processor everything else on this machine takes, from now on. Linux only."""

    def __init__(self) -> None:
        self.began = self._elsewhere(), time.monotonic()

    def share(self) -> float | None:
        """The part of all cores' time, other virtual machines on the same processor included where the kernel knows."""
        now, began = self._elsewhere(), self.began[0]
        if now is None or began is None:
            return None
        return round(max(0.0, now - began) / (time.monotonic() - self.began[1]) / (os.cpu_count() or 1), 3)

    @staticmethod
    def _elsewhere() -> float | None:
        stat = Path("/proc/stat")
        if not stat.exists():
            return None
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4])


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
    }


def show(figures: list[Figure], here: dict[str, object]) -> None:
    table = Table("", "median", "quartiles", "limit", title=f"{here['cpu']}, {here['threads']} threads, {here['date']}")
    for column in table.columns[1:]:
        column.justify = "right"
    part = ""
    for figure in figures:
        if figure.part != part:
            part = figure.part
            table.add_section()
            table.add_row(f"[bold]{part}")
        value = figure.value
        spread = "" if value.low == value.high else f"{_short(value.low)} to {_short(value.high)}"
        limit = "" if figure.limit is None else f"{figure.limit:g} {'kept' if figure.kept else 'MISSED'}"
        table.add_row(f"  {figure.name}", f"{_short(value.median)} {figure.unit}", spread, limit)
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    if here.get("used elsewhere") is not None:
        print(f"Other processes used {here['used elsewhere']:.1%} of the processor meanwhile.")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def report(measure: Callable[[], list[Figure]], path: Path | None, **about: object) -> None:
    """Measure, print the table, and write it to a file if one is named."""
    here, neighbours = machine(), Neighbours()
    figures = measure()
    here["used elsewhere"] = neighbours.share()
    show(figures, here)
    if path:
        write(path, figures, {**here, **about})


def write(path: Path, figures: Iterable[Figure], here: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**here, "figures": [figure.as_dict() for figure in figures]}, indent=1) + "\n")
