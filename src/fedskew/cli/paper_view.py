"""What `fedskew paper` prints."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, echo, fitted, note, percent_of, print_json, say, say_written
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from fedskew.cli.document_parts import MapRow, PaperRow
    from fedskew.cli.documents import PaperMap, PaperTable
    from fedskew.paper.choice import Choice
    from fedskew.paper.map import Map
    from fedskew.runs.results import Results
    from fedskew.runs.run import Run
    from fedskew.runs.store import Store
    from fedskew.simulation.execute import Problem
    from fedskew.simulation.records import RoundRecord


def cell_of(run: "Run") -> str:
    """The federation in a line, with the local epochs where they are not 1: the cells of table 5 differ in them."""
    return run.title if run.local_epochs == 1 else f"{run.title}, {run.local_epochs} local epochs"


def say_done(run: "Run", record: "RoundRecord", *, enabled: bool) -> None:
    if enabled:
        state = f"diverged in round {record.round}" if record.diverged else f"{percent_of(record.accuracy)} %"
        length = counted(run.rounds, "round")
        say(f"{state}  {run.short_algorithm}  {cell_of(run)}, seed {run.seed}, {length}, {run.hash[:8]}")


def report_problems(problems: Sequence["Problem"], waits: str | None) -> None:
    """Report what was not done and why; exit with 1 if something failed or waits for others."""
    failed = [problem for problem in problems if not problem.busy]
    for reason in dict.fromkeys(problem.reason for problem in failed):
        runs = [run for problem in failed if problem.reason == reason for run in problem.runs]
        first = cell_of(runs[0]) + (", ..." if len(runs) > 1 else "")
        say(f"fedskew: {counted(len(runs), 'run')} not done ({first}): {reason}", err=True)
    if busy := sum(len(problem.runs) for problem in problems if problem.busy):
        note(f"another process is doing {busy} of the runs")
    if waits:
        say(f"fedskew: {waits}", err=True)
    if failed or waits:
        raise typer.Exit(1)


def print_map(
    asked: "Map", choice: "Choice", results: "Results", out: Path | None, *, json_: bool, quiet: bool
) -> None:
    from fedskew.paper.map_text import sentences
    from fedskew.runs.summary import mean_head

    rows = asked.rows(results, choice)
    said = sentences(rows)
    made = [str(path) for path in asked.draw(rows, out)] if out is not None and rows else []
    if json_:
        document: PaperMap = {
            "cell": asked.cell,
            "stand_in": choice.stand_in,
            "rows": cast("list[MapRow]", rows),
            "summary": said,
            "files": made,
        }
        print_json(document)
        return
    mean = mean_head(row["rounds"] for row in rows)
    grid = Grid("part", "setting", "method", "held out %", "test %", f"{mean} %", "rounds", keys=3)
    for row in rows:
        known = [row[name] for name in ("validation", "test", "last_ten")]
        figures = ["-" if value is None else f"{value:.2f}" for value in known]
        grid.add_row(row["part"], row["setting"], row["algorithm"], *figures, str(row["rounds"]))
    if not quiet:
        console().print(grid if rows else "nothing of this map has been run yet")
    if rows and choice.stand_in:
        echo(f"STAND-IN DATA: {rows[0]['dataset']}, not the paper's")
    for line in said:
        say(line)
    if made:
        say_written(made)


def figure_text(figure: Any, rows: Sequence[dict[str, Any]], results: "Results", title: str, asked: str) -> str:
    """A figure in words, and what draws or makes it."""
    from fedskew.paper import formats

    missing = [formats.NOT_RUN, f"`fedskew paper run {asked}` runs it."]
    hints = [f"`fedskew paper show {asked} --out {figure.name}.png` draws it"] if rows else missing
    lines = [title, *figure.lines(rows), *formats.behind(rows, results), *hints]
    return "\n".join(fitted(line, console().width) for line in lines) + "\n"


def asked_again(item: str, profile: str, runs: str | None, *, stand_in: bool) -> str:
    """What a command on the same runs is given: `table1 --profile usual --stand-in --runs demo/runs`."""
    asked = f"{item} --profile {shlex.quote(profile)}" + (" --stand-in" if stand_in else "")
    return asked + (f" --runs {shlex.quote(runs)}" if runs else "")


def where_runs_are(asked: str, rows: Sequence[dict[str, Any]], store: "Store", published: Path) -> str:
    """Where the runs of a table are, and what makes those that are missing."""
    if not any(row["ours"] for row in rows):
        return f"`fedskew paper run {asked}` runs it."
    places = dict.fromkeys(f"{folder}/" for folder in (store.root, published) if folder.is_dir())
    return (
        f"Runs are in {' and '.join(places)}; `fedskew paper show {asked} --format csv` has their hashes, and "
        f"`fedskew paper run {asked}` does those that are missing."
    )


def of_the_paper(item: Any, rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of the methods that a table has anyway, and a note on the later ones."""
    kept = [row for row in rows if row["method"] in item.methods]
    later = len({row["method"] for row in rows}) - len({row["method"] for row in kept})
    return kept, [f"Later methods were run too ({later}): `--methods all` shows them."] if later else []


def formatted(format: str, rows: Sequence[dict[str, Any]], title: str, target: float | None) -> str:
    """Our results next to the paper's, for other programs and for texts."""
    from fedskew.paper import formats

    if format == "json":
        document: PaperTable = {"title": title, "rows": cast("list[PaperRow]", list(rows))}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"
    if format == "csv":
        return formats.csv_text(rows)
    known = {"markdown": formats.markdown, "latex": formats.latex}
    if format not in known:
        raise ValueError(f"format is {format!r}; allowed: terminal, {', '.join(known)}, csv, json")
    return known[format](rows, target)


def table_text(
    rows: Sequence[dict[str, Any]], title: str, target: float | None, notes: Sequence[str], *, quiet: bool
) -> str:
    """The same for the terminal, with `notes` at the end."""
    from fedskew.paper import formats
    from fedskew.paper.sections import by_data, sections

    screen = console(color_system=None)  # printed like any other text, or written to a file

    def tell(lines: Sequence[str]) -> None:
        for line in lines:
            screen.out(fitted(line, screen.width))

    with screen.capture() as capture:
        tell([title])
        for data, here in by_data(rows).items():
            tell([*(["", data] if data else []), ""])
            for one in sections(here, target):
                tell([one.title])
                screen.print(Grid.of(one.heads, one.rows))
            tell([] if quiet else formats.rests_on(here))
        tell([] if quiet else notes)
    return str(capture.get())


def time_text(seconds: float, unknown: int) -> str:
    """`3 min`, `2.5 h, without 8 runs`, `no estimate`: `unknown` runs are like none that has finished on the device."""
    text = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    text = f"{seconds / 3600:.1f} h" if seconds >= 5400 else text
    if not unknown:
        return text
    return f"{text}, without {counted(unknown, 'run')}" if seconds else "no estimate"
