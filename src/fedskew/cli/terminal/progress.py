"""What the command line prints: progress on standard error, tables and JSON on standard output."""

import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedskew.cli.terminal.grid import GLUE, Grid
from fedskew.progress import echo as echo
from fedskew.progress import percent_of as percent_of
from fedskew.progress import printable
from fedskew.progress import round_progress as round_progress
from fedskew.runs.summary import counted, seeds_text

if TYPE_CHECKING:
    from pathlib import Path

    from fedskew.cli.documents import DataFiles, RunResult
    from fedskew.data.fetch import Status
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder
    from fedskew.simulation.records import RoundRecord

_WHOLE = re.compile(r"`[^`]*`|\d %")
"""Where no line ends: in a command, and between a number and its percent sign."""
_ENDLESS = 1_000_000
"""Columns, where nothing limits them."""
_MOST_CLIENTS, _MOST_CLASSES, _MOST_FREQUENT = 50, 20, 5
"""Limits of what `fedskew inspect` shows: clients, classes as columns, and a client's classes if there are more."""


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
        return f"{self.seconds:.1f} s for {counted(self.computed, 'round')}" + (
            f", {self.stored} from the store" if self.stored else ""
        )


@contextmanager
def byte_progress(name: str, *, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar for a download or for decoding, if standard error is a terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(escape(printable(name)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def item_progress(name: str, *, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar, if standard error is a terminal; else one line that says what is being done."""
    if enabled and not sys.stderr.isatty():
        echo(name, err=True)
    with byte_progress(name, enabled=enabled) as step:
        yield step


def say(text: str, *, err: bool = False, under: int = 0) -> None:
    """Print a sentence. On a terminal it is `fitted`."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = fitted(text, shutil.get_terminal_size().columns, under)
    echo(text, err=err)


def fitted(text: str, columns: int, under: int = 0) -> str:
    """A sentence wrapped between words, under its own indent or `under` a column; what is in backticks stays in one
    line."""
    whole = _WHOLE.sub(lambda found: found[0].replace(" ", GLUE), text)
    return "\n".join(_wrapped(whole, columns, min(under, columns // 2)))


def say_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns. On a terminal values are wrapped in theirs, except single words, which may
    be paths or hashes."""
    rows = list(fields)
    width = 2 + max(len(name) for name, _ in rows)
    for name, value in rows:
        if " " in value:
            say(f"{name:{width}}{value}", under=width)
        else:
            echo(f"{name:{width}}{value}")


def say_command(words: Sequence[str]) -> None:
    """Print a command for a shell, indented. On a terminal it goes over several lines, all but the last of which end
    with a backslash, so that it can be copied. An option stays with its value."""
    width = shutil.get_terminal_size().columns - 2 if sys.stdout.isatty() else sys.maxsize
    quoted = [shlex.quote(word).replace(" ", GLUE) for word in words]
    text = "".join(word + (GLUE if word.startswith("--") else " ") for word in quoted)
    echo(" \\\n".join(_wrapped(f"  {text}", width)))


def _wrapped(text: str, width: int, under: int = 0) -> list[str]:
    indent = len(text) - len(text.lstrip())
    deeper = " " * (under or (indent + 2 if indent else 0))
    lines = textwrap.wrap(text, width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False)
    return [line.replace(GLUE, " ") for line in lines] or [""]


def say_over_seeds(title: str, seeds: int) -> None:
    """The line above a table: what it is about, and over how many seeds."""
    say(f"{title}, {seeds_text(seeds)}" + (" (mean ± std)" if seeds > 1 else ""))


def say_written(paths: Iterable[object]) -> None:
    say("written: " + ", ".join(map(str, paths)))


def note(message: str) -> None:
    """Print a note to standard error."""
    say(f"fedskew: note: {message}", err=True)


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
        for line in said.splitlines():
            say(line)


def print_result(
    result: "RunResult", folder: "Folder", spent: Spent, class_names: Sequence[str] | None, *, engine: bool = False
) -> None:
    """The result of a run. Its engine is shown where that was asked for, on a GPU, and where clients that could not
    train together made the run slower."""
    from fedskew.runs.remarks import diverged_words, guessing_words
    from fedskew.runs.summary import mean_words

    session = (folder.sessions() or [{}])[-1]
    last_ten = f"{mean_words([result['rounds']])} {percent_of(result['accuracy_last10'])} %"
    fields = {
        "accuracy": f"{percent_of(result['accuracy'])} %   ({last_ten})",
        "balanced accuracy": f"{percent_of(result['balanced_accuracy'])} %",
    }
    if result["validation_accuracy"] is not None:
        fields["held out"] = f"{percent_of(result['validation_accuracy'])} %"
    if result["client_accuracy"] is not None:
        fields["mean over clients"] = f"{percent_of(result['client_accuracy'])} %"
    fields |= {
        "% per class": _per_class(result["per_class_accuracy"] or (), class_names),
        "loss": "-" if result["loss"] is None else format(result["loss"], ".4f"),
        "time": str(spent),
        "kept in": str(folder.path),
    }
    slow = result["engine"] == "serial" and result["run"]["engine"] == "auto"
    if engine or slow or result["device"] != "cpu":
        fields["engine"] = f"{result['engine']} on {result['device']}: {session.get('engine_reason', '')}"
    if session.get("changed"):
        changes = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in session["changed"].items())
        fields["continued with"] = f"{changes}: the last bits may differ from an uninterrupted run"
    if said := guessing_words(result, session):
        fields["note"] = said
    if result["diverged"]:
        say(diverged_words(result))
    say_fields(fields.items())


def _per_class(shares: Sequence[float | None], names: Sequence[str] | None) -> str:
    """`0: 97.22, 1: 88.89`, with names `cat 97.22, dog 88.89`; of many classes the lowest and the highest."""
    shown = [f"{name} " for name in names] if names else [f"{label}: " for label in range(len(shares))]
    told = [name + percent_of(share) for name, share in zip(shown, shares, strict=True)]
    if len(told) <= _MOST_CLASSES:
        return ", ".join(told)
    order = sorted((share, label) for label, share in enumerate(shares) if share is not None)
    return f"lowest {told[order[0][1]]}, highest {told[order[-1][1]]} (`runs show` has all {len(told)})"


def print_comparison(
    rows: Sequence[dict[str, Any]], title: str, spent: Mapping[str, Spent], target: float | None, eval_every: int
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
    say_over_seeds(title, len(rows[0]["seeds"]))
    console().print(grid)
    for row, difference in zip(rows, differences(rows), strict=True):
        if difference is not None:
            say(f"{end_of(rows)}: {difference.sentence(name_of(row), base_name(rows))}")
    if not any(one.computed for one in spent.values()):
        echo("all runs are from the store, nothing computed")
    if eval_every > 1 and any(row["rounds_to_reach"] for row in rows):
        say(f"rounds to reach an accuracy are evaluated ones, every {eval_every} rounds and the last ten")


def say_what_decides(rows: Sequence[Mapping[str, Any]]) -> None:
    """What verdicts mean, or why there are none, or none that is decided."""
    from fedskew.report.comparison import differences
    from fedskew.runs.verdict import FEWEST, OPEN

    names, baseline, seeds = [row["method"] for row in rows], rows[0]["baseline"], len(rows[0]["seeds"])
    if baseline not in names:
        first = f"; `--baseline {shlex.quote(names[0])}` judges against {names[0]}" if names[1:] else ""
        say(f"no verdicts: {baseline} is not among the methods{first}")
    if names[1:] and seeds < FEWEST:
        say(f"{'one seed decides' if seeds == 1 else 'two seeds decide'} nothing; three can: `--seeds {FEWEST}`")
    verdicts = {difference.verdict for difference in differences(rows) if difference and difference.half is not None}
    if verdicts:
        more = "; open: it contains zero and is wide, more seeds are needed" if OPEN in verdicts else ""
        say(f"differences are points of accuracy, with the 95 % interval over seeds{more}")


def print_data(statuses: Sequence["Status"], where: "Path", *, json_: bool, quiet: bool) -> None:
    rows: list[DataFiles] = [
        {"dataset": s.name, "state": s.state, "bytes": s.bytes, "path": str(s.path), "source": s.source}
        for s in statuses
    ]
    grid = Grid("data set", "state", "MB", "path", "from")
    for row in rows:
        grid.add_row(row["dataset"], row["state"], f"{row['bytes'] / 1e6:,.1f}", row["path"], row["source"])
    if json_:
        print_json(rows)
    elif not quiet:
        console().print(grid if rows else f"no data files in {where}; `fedskew data fetch NAME` downloads some")


def print_card(run: "Run", card: dict[str, Any]) -> None:
    skew = card["skew"]
    say(f"{run.title}, {card['samples']} examples, seed {run.seed}")
    console().print(_few_classes(card) if card["classes"] <= _MOST_CLASSES else _many_classes(card))
    if card["clients"] > _MOST_CLIENTS:
        echo(f"... and {card['clients'] - _MOST_CLIENTS} more clients (--json shows all)")
    if card["classes"] > _MOST_CLASSES:
        say(f"the {_MOST_FREQUENT} most frequent of {card['classes']} classes (--json shows the counts of all)")
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
