"""`fedskew runs`: what the store holds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import click
import typer

from fedskew.cli.options import Json, Quiet, Runs, open_store
from fedskew.cli.shared import result_of, unreadable
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import answer, console, echo, note, percent_of, print_json, say, say_fields

if TYPE_CHECKING:
    from fedskew.cli.document_parts import Session
    from fedskew.cli.documents import CondensedRuns, ListedRun, RemovedRuns, ShownRun, UnreadableRun
    from fedskew.runs.listing import Listed


runs_app = typer.Typer(short_help="Runs in the store: list, show, remove, condense.", rich_markup_mode=None)
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="Only runs with this field or argument: lr=0.1, algorithm=fedlc, tau=2; can be repeated."
    ),
]
_FEDERATION = "federation, clients"
State = Annotated[
    str | None, typer.Option("--state", help="Only runs that are done | unfinished | diverged | unreadable.")
]
Sort = Annotated[str | None, typer.Option("--sort", help="accuracy | date | lr, or any other field.")]


@runs_app.callback(invoke_without_command=True)
def runs_callback(
    context: typer.Context,
    where: Where = None,
    state: State = None,
    sort: Sort = None,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Runs in the store; without a command, list them.

    Example: fedskew runs --where lr=0.1 --sort accuracy
    """
    if context.invoked_subcommand is None:
        runs_list(where, state, sort, json_, quiet, runs)
    elif where or state or sort or json_ or quiet or runs:
        raise click.UsageError(f"options must come after {context.invoked_subcommand}", context)


@runs_app.command("list", short_help="All runs: in what they differ, and how far they are.")
def runs_list(
    where: Where = None,
    state: State = None,
    sort: Sort = None,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """List runs: differences, progress and date.

    Example: fedskew runs list --where algorithm=fedlc --state done --sort accuracy
    """
    from fedskew.runs.listing import in_order, listed, select

    store = open_store(runs)
    everything = [listed(folder) for folder in store]
    rows = in_order(select(everything, where or (), state), sort)
    if json_:
        print_json(cast("list[ListedRun | UnreadableRun]", [row.as_dict() for row in rows]))
    elif quiet:
        for row in rows:
            echo(row.hash)
    elif not everything:
        echo(f"there are no runs in {store.root.absolute()}: `fedskew run` makes one; --runs names another folder")
    elif not rows:
        echo(f"none of the {len(everything)} runs matches")
    else:
        _print_rows(rows)


def _print_rows(rows: Sequence["Listed"]) -> None:
    """A column for each field that differs; what all runs have in common is printed once, above. What says how well a
    run did comes first, arguments of methods before other settings. Runs that hold out examples, like tries, show their
    accuracy on these: one who chooses must not see that on the test set."""
    from fedskew.core.spec import family
    from fedskew.runs.listing import arguments, differing

    readable = [row for row in rows if row.problem is None]
    of_methods = {name for row in readable for name in arguments(row.whole["algorithm"])}
    settings = sorted(differing(rows), key=lambda name: name not in of_methods)
    if len({(row.fields["dataset"], row.fields["model"]) for row in readable}) == len(
        {row.fields["dataset"] for row in readable}
    ):
        settings = [name for name in settings if name != "model"]  # each data set has its own
    varied = not of_methods.isdisjoint(settings)
    columns: dict[str, Callable[[Listed], str]] = {
        "method": lambda row: family(row.fields["algorithm"]) if varied else str(row.fields["algorithm"]),
        "seed": lambda row: str(row.fields["seed"]),
        _FEDERATION: lambda row: row.title.removesuffix(" clients"),
        **{name: lambda row, name=name: _setting(row, name) for name in settings},  # type: ignore[misc]
    }
    found = {head: [text(row) if row.problem is None else "" for row in rows] for head, text in columns.items()}
    same = {head: texts[0] for head, texts in found.items() if readable and len(rows) > 1 and len(set(texts)) == 1}
    if shared := [head for head in ("method", _FEDERATION, "seed") if head in same]:
        words = {**same, _FEDERATION: rows[0].title, "seed": f"seed {rows[0].fields['seed']}"}
        of = "with" if shared == ["seed"] else "of"
        say(f"{len(rows)} runs {of} {', '.join(words[head] for head in shared)}")
    kept = {head: texts for head, texts in found.items() if head not in same}
    first = [head for head in kept if head == "method"]
    measures = {
        "accuracy %": ["" if row.held_out is not None else percent_of(row.accuracy) for row in rows],
        "held out %": ["" if row.held_out is None else percent_of(row.held_out) for row in rows],
    }
    measured = {head: texts for head, texts in measures.items() if any(texts)}
    heads = "run", *first, *measured, "rounds", *(head.replace("_", " ") for head in kept if head != "method")
    grid = Grid(*heads, "written", keys=1 + len(first), lines=1)
    for i, row in enumerate(rows):
        said = row.state if row.state in ("diverged", "unreadable") else ""
        date = "" if row.written is None else f"{row.written.astimezone():%Y-%m-%d %H:%M}"
        cells = {head: texts[i] for head, texts in kept.items()}
        method = [cells.pop(head) for head in first]
        how_well = *(texts[i] for texts in measured.values()), f"{row.progress} {said}".strip()
        grid.add_row(row.hash[:8], *method, *how_well, *cells.values(), date)
    console().print(grid)
    for problem in unreadable((row.hash, row.problem) for row in rows if row.problem is not None):
        note(problem)


def _setting(row: "Listed", name: str) -> str:
    """A setting as a cell; what a method does not have is nothing."""
    from fedskew.core.spec import show

    if name == "clients_per_round" and row.fields[name] == row.fields["clients"]:
        return "all"
    return show(row.fields[name]) if name in row.fields else ""


@runs_app.command("show")
def runs_show(run: str, json_: Json = False, quiet: Quiet = False, runs: Runs = None) -> None:
    """Show one run in full. RUN is its hash or the beginning of its hash.

    Example: fedskew runs show 3fa9
    """
    from fedskew.runs.remarks import measured_words

    folder = open_store(runs).find(run)
    sessions, records = cast("list[Session]", folder.sessions()), folder.records()
    shown: ShownRun = {**result_of(folder, records), "sessions": sessions}
    if json_:
        print_json(shown)
    elif quiet:
        echo(f"{percent_of(shown['accuracy'])} {folder.path.name}")
    else:
        result = {name: value for name, value in shown.items() if name not in ("run", "sessions")}
        fields = [(name, _readable(value)) for name, value in {**shown["run"], **result}.items()]
        for session in shown["sessions"]:
            told = {name: value for name, value in session.items() if value not in ("", {}, None)}
            fields.append(("session", ", ".join(f"{name} {_readable(value)}" for name, value in told.items())))
        if said := measured_words(records):
            fields.append(("note", said))
        say_fields(fields)


def _readable(value: object) -> str:
    """A number with four digits after the point, a list as its values, `-` for nothing."""
    if isinstance(value, list):
        return ", ".join(map(_readable, value))
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) >= 1e-3 or not value else f"{value:g}"
    return "-" if value is None else str(value)


@runs_app.command("remove")
def runs_remove(
    run: Annotated[list[str], typer.Argument(help="Hashes or their beginnings.")],
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Delete runs from the store.

    Example: fedskew runs remove 3fa9
    """
    store = open_store(runs)
    found = [store.find(beginning) for beginning in run]
    for folder in found:
        store.remove(folder)
    document: RemovedRuns = {"removed": [folder.path.name for folder in found]}
    answer(document, "removed: " + ", ".join(document["removed"]), json_=json_, quiet=quiet)


@runs_app.command("condense", short_help="Write each finished run as one line.")
def runs_condense(
    path: Annotated[Path, typer.Argument(help="The .jsonl file to write, or to add to.")],
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Write each finished run of the store as one line of text, to publish or copy.

    Example: fedskew runs condense results/paper/mine.jsonl
    """
    from fedskew.runs.results import stored, write_lines

    problems: list[str] = []
    found = list(stored(open_store(runs), problems))
    lines = write_lines(path, found)
    for problem in problems:
        note(f"left out: {problem}")
    document: CondensedRuns = {"file": str(path), "added": len(found), "lines": lines, "left_out": problems}
    answer(document, f"written: {path}, {lines} runs", json_=json_, quiet=quiet)
