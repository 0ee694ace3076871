"""A live dashboard: `fedskew run --watch` draws accuracy, classes, drift and the time left in the terminal."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fedskew.progress import percent_of, printable, round_progress, span

if TYPE_CHECKING:
    from fedskew.simulation.records import RoundRecord

_OTHER_LINES = 9
_CTRL_C = 2
"""Columns that stay free at the right: a terminal's `^C` would begin a new line there, and what is erased would be one
line too few."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_RECENT = 20
_CURVES = {
    "accuracy": "",
    "client loss": "mean over clients",
    "drift norm": "of the mean client delta",
    "drift cosine": "mean between two clients",
}
"""What is drawn as a curve, with a note."""


@contextmanager
def watching(title: str, rounds: int, *, enabled: bool) -> Iterator[Callable[[str, "RoundRecord"], None]]:
    """The dashboard if standard error is a terminal; else the ordinary progress, which may be none."""
    if not (enabled and sys.stderr.isatty()):
        with round_progress(rounds, enabled=enabled) as step:
            yield step
        return
    from rich.console import Console
    from rich.live import Live

    board = Board(title, rounds)
    screen, above = Console(stderr=True), sys.stdout.isatty()
    with Live(board, console=screen, refresh_per_second=4, transient=True, redirect_stdout=above):
        yield lambda name, record: board.add(record, time.monotonic())


class Board:
    """The rounds seen so far and how they are drawn; rich redraws four times a second."""

    def __init__(self, title: str, rounds: int) -> None:
        self.title, self.rounds, self.done = title, rounds, 0
        self.curves: dict[str, list[float]] = {name: [] for name in _CURVES}
        self.classes: Sequence[float | None] = ()
        self.engine, self.diverged = "", False
        self._times = deque[float](maxlen=_RECENT)

    def add(self, record: "RoundRecord", now: float) -> None:
        """Add a round. `now` is in seconds on any clock."""
        self.done, self.diverged = record.round, record.diverged
        self.engine = f"{record.engine} on {record.device}"
        if record.server is None:  # read from the store: earlier rounds say nothing about the pace
            self._times.clear()
        self._times.append(now)
        drift = (record.probes.get(name) for name in ("drift_norm", "drift_cosine"))
        for kept, value in zip(self.curves.values(), (record.accuracy, record.train_loss, *drift), strict=True):
            if value is not None:
                kept.append(value)
        self.classes = record.per_class_accuracy or self.classes

    def seconds_left(self) -> float | None:
        """From the pace of the last rounds that were computed."""
        if len(self._times) < 2:
            return None
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1) * (self.rounds - self.done)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        whole = options.max_width - _CTRL_C
        width = max(10, whole - 4)
        state = "diverged: the model gives no finite numbers" if self.diverged else f"{span(self.seconds_left())} left"
        parts = [
            Text(f"round {self.done} of {self.rounds}   {state}   {self.engine}", style="red" if self.diverged else ""),
            Text(bar(self.done / self.rounds, width)),
            self._curves(width),
            *self._classes(console.size.height - _OTHER_LINES, width),
        ]
        title = Text(printable(self.title))
        title.truncate(max(1, whole - 6))  # a longer one would make the box wider
        yield Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, width=whole)

    def _curves(self, width: int) -> Any:
        """One line per measure: the last value, the curve so far, and its name."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        for _ in range(4):
            grid.add_column(no_wrap=True)
        for name, values in self.curves.items():
            last, note = values[-1] if values else None, _CURVES[name]
            shown = "-" if last is None else f"{last:.4g}"
            if name == "accuracy":
                shown, note = f"{percent_of(last)} %", f"best {percent_of(max(values, default=None))} %"
            grid.add_row(name, shown, sparkline(values, max(8, min(30, width - 54))), note)
        return grid

    def _classes(self, room: int, width: int) -> list[Any]:
        """A bar per class if there is room, else a block per class."""
        from rich.table import Table
        from rich.text import Text

        if not self.classes:
            return []
        if len(self.classes) > room:
            known = [0.0 if share is None else share for share in self.classes]
            return [Text(f"accuracy of classes 0 to {len(known) - 1}"), Text(blocks(known, 0, 1))]
        grid = Table.grid(padding=(0, 2))
        for label, share in enumerate(self.classes):
            grid.add_row(f"class {label}", f"{percent_of(share):>6} %", bar(share or 0, max(5, min(40, width - 24))))
        return [grid]


def bar(share: float, width: int) -> str:
    """A bar that can be read without colours."""
    full = round(share * width)
    return "█" * full + "░" * (width - full)


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of blocks, between its lowest and highest value; neighbours are averaged if it is long."""
    if not values:
        return ""
    cuts = [i * len(values) // min(width, len(values)) for i in range(min(width, len(values)) + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    return blocks(means, min(means), max(means))


def blocks(values: Sequence[float], low: float, high: float) -> str:
    """A block per value, as high as it is between low and high."""
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in values)
