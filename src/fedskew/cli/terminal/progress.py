"""What the command line prints: progress on standard error, tables and JSON on standard output."""

import json
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedskew.cli.terminal.grid import GLUE, Grid, printable

if TYPE_CHECKING:
    from fedskew.cli.documents import DataFiles, RunResult
    from fedskew.data.fetch import Status
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder
    from fedskew.simulation.records import RoundRecord

_EVERY = 30.0
"""Seconds between lines of progress."""
_ENDLESS = 1_000_000
"""Columns, where nothing limits them."""
_MOST_CLIENTS, _MOST_CLASSES, _MOST_FREQUENT = 50, 20, 5
"""Limits of what `fedskew inspect` shows: clients, classes as columns, and a client's classes if there are more."""


@contextmanager
def round_progress(total: int, *, enabled: bool) -> Iterator[Callable[[str, "RoundRecord"], None]]:
    """On a terminal a spinner and a bar, which also moves within a round; else a line every half minute."""
    if not enabled:
        yield lambda name, record: None
    elif not sys.stderr.isatty():
        yield Lines(total)
    else:
        with _bar(total) as step:
            yield step


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, "RoundRecord"], None]]:
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("getting ready", total=total, accuracy="", within="")

        def step(name: str, record: "RoundRecord") -> None:
            shown: dict[str, Any] = (
                {} if record.accuracy is None else {"accuracy": f"accuracy {percent_of(record.accuracy)} %"}
            )
            bar.update(task, advance=1, description=printable(name), within="", **shown)

        with listening(lambda share: bar.update(task, within=f"{100 * share:.0f} % of a round, " if share < 1 else "")):
            yield step


class Spent:
    """The seconds of newly computed rounds, and how many rounds were read from the store."""

    def __init__(self) -> None:
        self.seconds, self.computed, self.stored = 0.0, 0, 0

    def add(self, record: "RoundRecord") -> None:
        if record.server is None:
            self.stored += 1
        else:
            self.computed, self.seconds = self.computed + 1, self.seconds + record.seconds

    def __str__(self) -> str:
        """`3.1 s for 60 rounds`, `1.2 s for 20 rounds, 40 from the store`, `from the store, nothing computed`"""
        if not self.computed:
            return "from the store, nothing computed"
        return f"{self.seconds:.1f} s for {rounds_text(self.computed)}" + (
            f", {self.stored} from the store" if self.stored else ""
        )


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


def rounds_text(number: int) -> str:
    """`1 round`, `60 rounds`"""
    return f"{number} round{'' if number == 1 else 's'}"


def span(seconds: float | None) -> str:
    """`42 s`, `3:05 min`, `2:10 h`"""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"


@contextmanager
def byte_progress(name: str, *, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar for a download or for decoding, if standard error is a terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(printable(name)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def item_progress(name: str, *, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar, if standard error is a terminal; else one line that says what is being done."""
    if enabled and not sys.stderr.isatty():
        echo(name, err=True)
    with byte_progress(name, enabled=enabled) as step:
        yield step


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a line, escaped: titles, paths and specs come from files that others may have written."""
    print(printable(text), file=sys.stderr if err else sys.stdout, end="\n" if nl else "", flush=True)


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence. On a terminal it is wrapped between words, under its own indent."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = "\n".join(_wrapped(text, shutil.get_terminal_size().columns))
    echo(text, err=err)


def say_command(words: Sequence[str]) -> None:
    """Print a command for a shell, indented. On a terminal it goes over several lines, all but the last of which end
    with a backslash, so that it can be copied. An option stays with its value."""
    width = shutil.get_terminal_size().columns - 2 if sys.stdout.isatty() else sys.maxsize
    quoted = [shlex.quote(word).replace(" ", GLUE) for word in words]
    text = "".join(word + (GLUE if word.startswith("--") else " ") for word in quoted)
    echo(" \\\n".join(_wrapped(f"  {text}", width)).replace(GLUE, " "))


def _wrapped(text: str, width: int) -> list[str]:
    indent = len(text) - len(text.lstrip())
    deeper = " " * (indent + 2 if indent else 0)
    return textwrap.wrap(text, width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False) or [""]


def say_written(paths: Iterable[object]) -> None:
    say("written: " + ", ".join(map(str, paths)))


def note(message: str) -> None:
    """Print a note to standard error."""
    say(f"fedskew: note: {message}", err=True)


def percent_of(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


def console(**options: Any) -> Any:
    """Standard output for tables: as wide as the terminal or $COLUMNS; else a row is a line, however long."""
    from rich.console import Console

    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, markup=False, width=None if limited else _ENDLESS, **options)


def print_json(document: Any) -> None:
    echo(json.dumps(document, indent=1, allow_nan=False))


def answer(document: Any, said: str, *, json_: bool, quiet: bool) -> None:
    """What a command did: its document with `--json`, else in words, else nothing."""
    if json_:
        print_json(document)
    elif not quiet:
        echo(said)


def print_result(
    result: "RunResult", folder: "Folder", spent: "Spent", class_names: Sequence[str] | None = None
) -> None:
    from fedskew.runs.remarks import diverged_words, guessing_words
    from fedskew.runs.summary import mean_words

    session = (folder.sessions() or [{}])[-1]
    classes = " ".join(percent_of(share) for share in result["per_class_accuracy"] or ())
    if class_names and classes:
        classes = ", ".join(f"{name} {share}" for name, share in zip(class_names, classes.split(), strict=True))
    lines = [
        f"accuracy           {percent_of(result['accuracy'])} %   ({mean_words([result['rounds']])} "
        f"{percent_of(result['accuracy_last10'])} %)",
        f"balanced accuracy  {percent_of(result['balanced_accuracy'])} %",
        f"per class          {classes}",
        f"loss               {'-' if result['loss'] is None else format(result['loss'], '.4f')}",
        f"engine             {result['engine']} on {result['device']}: {session.get('engine_reason', '')}",
        f"time               {spent}",
        f"kept in            {folder.path}",
    ]
    if result["client_accuracy"] is not None:
        lines.insert(2, f"mean over clients  {percent_of(result['client_accuracy'])} %")
    if result["validation_accuracy"] is not None:
        lines.insert(2, f"held out           {percent_of(result['validation_accuracy'])} %")
    if session.get("changed"):
        changes = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in session["changed"].items())
        lines.append(f"continued with     {changes}: the last bits may differ from an uninterrupted run")
    if said := guessing_words(result, session):
        lines.append(f"note               {said}")
    if result["diverged"]:
        lines.insert(0, diverged_words(result))
    echo("\n".join(lines))


def print_comparison(
    rows: Sequence[dict[str, Any]],
    title: str,
    spent: Mapping[str, "Spent"],
    target: float | None = None,
    eval_every: int = 1,
) -> None:
    from fedskew.report.comparison import base_name, differences, end_of, heads_of, more_columns, name_of
    from fedskew.runs.summary import held_out, percent
    from fedskew.runs.verdict import best

    clients = any(row["client_accuracy"]["mean"] is not None for row in rows)
    measures = ["accuracy", "balanced_accuracy", *(["client_accuracy"] if clients else []), "accuracy_last10"]
    measures += held_out(rows)
    more = more_columns(rows, target)
    heads = heads_of(end_of(rows))
    grid = Grid("method", *(heads[name] for name in measures), *more, "time s")
    leaders = {name: best(rows, name) for name in measures}
    for i, row in enumerate(rows):
        cells = [percent(row[name]["mean"], row[name]["std"]) for name in measures]
        name = name_of(row) + (f" ({row['diverged']} diverged)" if row["diverged"] else "")
        leads = [column for column, measure in enumerate(measures, 1) if leaders[measure] == i]
        more_cells = (column[i] for column in more.values())
        mine = spent[row["method"]]
        grid.add_row(name, *cells, *more_cells, f"{mine.seconds:.1f}" if mine.computed else "stored", bold=leads)
    seeds = len(rows[0]["seeds"])
    echo(f"{title}, one seed" if seeds == 1 else f"{title}, {seeds} seeds (mean ± std)")
    console().print(grid)
    for row, difference in zip(rows, differences(rows), strict=True):
        if difference is not None:
            say(f"{end_of(rows)}: {difference.sentence(name_of(row), base_name(rows))}")
    if not any(one.computed for one in spent.values()):
        echo("all runs are from the store, nothing computed")
    if eval_every > 1 and any(row["rounds_to_reach"] for row in rows):
        echo(f"rounds to reach an accuracy are evaluated ones, every {eval_every} rounds and the last ten")


def print_data(statuses: Sequence["Status"], *, json_: bool, quiet: bool) -> None:
    rows: list[DataFiles] = [
        {"dataset": s.name, "state": s.state, "bytes": s.bytes, "path": str(s.path), "source": s.source}
        for s in statuses
    ]
    if json_:
        print_json(rows)
        return
    grid = Grid("data set", "state", "MB", "path", "from")
    for row in rows if not quiet else ():
        grid.add_row(row["dataset"], row["state"], f"{row['bytes'] / 1e6:,.1f}", row["path"], row["source"])
    if not quiet:
        console().print(grid if rows else "no data files here")


def print_card(run: "Run", card: dict[str, Any]) -> None:
    skew = card["skew"]
    echo(f"{run.dataset}, {run.partition}, {card['clients']} clients, {card['samples']} examples, seed {run.seed}")
    console().print(_few_classes(card) if card["classes"] <= _MOST_CLASSES else _many_classes(card))
    if card["clients"] > _MOST_CLIENTS:
        echo(f"... and {card['clients'] - _MOST_CLIENTS} more clients (--json shows all)")
    if card["classes"] > _MOST_CLASSES:
        echo(f"the {_MOST_FREQUENT} most frequent of {card['classes']} classes (--json shows the counts of all)")
    echo(f"mean total variation to the global labels  {skew['mean_total_variation']:.3f}   (0 none, 1 disjoint)")
    echo(f"effective number of classes per client     {skew['effective_classes']:.2f} of {card['classes']}")
    echo(f"share of classes a client misses           {skew['missing_share']:.3f}")
    echo(f"Gini coefficient of client sizes           {skew['size_gini']:.3f}")
    echo(f"partition hash                             {card['hash'][:16]}")


def _few_classes(card: dict[str, Any]) -> Grid:
    grid = Grid("client", "size", *(str(c) for c in range(card["classes"])), "missing")
    for k, row in enumerate(card["counts"][:_MOST_CLIENTS]):
        cells = (str(n) if n else "·" for n in row)
        grid.add_row(str(k), str(card["sizes"][k]), *cells, str(len(card["missing"][k])))
    return grid


def _many_classes(card: dict[str, Any]) -> Grid:
    grid = Grid("client", "size", "missing", "most frequent classes (examples)")
    for k, row in enumerate(card["counts"][:_MOST_CLIENTS]):
        first = sorted((c for c, n in enumerate(row) if n), key=lambda c: -row[c])[:_MOST_FREQUENT]
        grid.add_row(
            str(k), str(card["sizes"][k]), str(len(card["missing"][k])), ", ".join(f"{c} ({row[c]})" for c in first)
        )
    return grid
