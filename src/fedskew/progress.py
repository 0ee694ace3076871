"""How far the work is: a bar on a terminal or in a notebook, lines elsewhere. Commands and Python calls share it."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.simulation.records import RoundRecord

_EVERY = 30.0
"""Seconds between lines of progress."""
_SLOW = 1.0
"""Seconds after which a bar also says how much of a round is done."""
Step = Callable[[str, "RoundRecord"], None]
"""What is called after every round, with the name of its run."""


@contextmanager
def round_progress(total: int, *, enabled: bool) -> Iterator[Step]:
    """A spinner and a bar, which also moves within a round, where one can be drawn; else a line every half minute."""
    if not enabled:
        yield lambda name, record: None
    elif not _draws():
        yield Lines(total)
    else:
        with _bar(total) as step:
            yield step


def held_out_only(step: Step) -> Step:
    """Progress by accuracy on held-out examples: that on the test set must not be seen yet."""
    return lambda name, record: step(f"{name}, held out", replace(record, accuracy=record.validation_accuracy))


def _draws() -> bool:
    """Whether standard error is a terminal, or this a notebook with what rich needs to draw there."""
    from rich.console import Console

    return sys.stderr.isatty() or (Console().is_jupyter and find_spec("ipywidgets") is not None)


@contextmanager
def _bar(total: int) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    from fedskew.core.pulse import listening

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[within]}{task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    above = sys.stdout.isatty()  # what is printed meanwhile is drawn above the bar, unless it goes to a file
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above) as bar:
        task = bar.add_task("getting ready", total=total, accuracy="", within="")
        within = Within()

        def step(name: str, record: "RoundRecord") -> None:
            shown: dict[str, Any] = (
                {} if record.accuracy is None else {"accuracy": f"accuracy {percent_of(record.accuracy)} %"}
            )
            within.begin()
            bar.update(task, advance=1, description=printable(name), within="", **shown)

        with listening(lambda share: bar.update(task, within=within(share))):
            yield step


class Within:
    """How much of this round is done, in words, if the round takes long: in fast rounds it would only flicker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        self._began = self._clock()

    def __call__(self, share: float) -> str:
        slow = self._clock() - self._began >= _SLOW
        return f"{100 * share:.0f} % of this round, " if slow and share < 1 else ""


class Lines:
    """Progress in lines, for logs: at most one every `_EVERY` seconds."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total, clock
        self._done, self._computed, self._accuracy = 0, 0, ""
        self._began = self._said = clock()

    def __call__(self, name: str, record: "RoundRecord") -> None:
        self._done += 1
        now = self._clock()
        if record.server is None:  # read from the store: it says nothing of the pace
            self._began, self._computed = now, 0
        else:
            self._computed += 1
        if record.accuracy is not None:
            self._accuracy = f", accuracy {percent_of(record.accuracy)} %"
        if now - self._said < _EVERY:
            return
        self._said = now
        left = (now - self._began) / max(1, self._computed) * (self._total - self._done)
        where = f"{name}, round {record.round}{self._accuracy}"
        echo(f"{where}; {self._done} of {self._total} rounds, about {span(left)} left", err=True)


def span(seconds: float | None) -> str:
    """`42 s`, `3:05 min`, `2:10 h`"""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a line, escaped: titles, paths and specs come from files that others may have written."""
    print(printable(text), file=sys.stderr if err else sys.stdout, end="\n" if nl else "", flush=True)


def printable(text: str) -> str:
    """A text in which everything is escaped that a terminal would interpret or could not show."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def percent_of(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
