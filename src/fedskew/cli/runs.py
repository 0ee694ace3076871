"""`fedskew runs`: what the store holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedskew.cli.options import (
    Json,
    Quiet,
    Runs,
    open_store,
)
from fedskew.cli.shared import result_of
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import (
    console,
    echo,
    note,
    percent_of,
    print_json,
)

if TYPE_CHECKING:
    from fedskew.runs.store import Folder


runs_app = typer.Typer(short_help="Runs in the store: list, show, remove, condense.", rich_markup_mode=None)


@runs_app.callback(invoke_without_command=True)
def runs_callback(context: typer.Context, json_: Json = False, quiet: Quiet = False, runs: Runs = None) -> None:
    """Runs in the store; without a command, the list of them.

    Example: fedskew runs list
    """
    if context.invoked_subcommand is None:
        runs_list(json_, quiet, runs)
    elif json_ or quiet or runs:
        raise click.UsageError(f"options go behind {context.invoked_subcommand}", context)


@runs_app.command("list")
def runs_list(json_: Json = False, quiet: Quiet = False, runs: Runs = None) -> None:
    """All runs, with what they are and how far they are.

    Example: fedskew runs list --json
    """
    rows = [_listed(folder) for folder in open_store(runs)]
    if json_:
        print_json(rows)
    elif quiet:
        for row in rows:
            echo(row["hash"])
    else:
        grid = Grid("run", "method", "federation", "seed", "rounds", "accuracy %")
        for row in rows:
            names = [str(row.get(name, "")) for name in ("algorithm", "title", "seed")]
            said = row["state"] if row["state"] in ("diverged", "unreadable") else ""
            grid.add_row(row["hash"][:8], *names, f"{row['progress']} {said}".strip(), percent_of(row.get("accuracy")))
        console().print(grid if rows else "no runs yet; `fedskew run` makes one")
        for row in rows:
            if "problem" in row:
                note(f"run {row['hash']} cannot be read: {row['problem']}")


@runs_app.command("show")
def runs_show(run: str, json_: Json = False, quiet: Quiet = False, runs: Runs = None) -> None:
    """One run whole. RUN is its hash or the beginning of it.

    Example: fedskew runs show 3fa9
    """
    folder = open_store(runs).find(run)
    shown = {**result_of(folder, folder.records()), "sessions": folder.sessions()}
    if json_:
        print_json(shown)
    elif quiet:
        echo(f"{percent_of(shown['accuracy'])} {folder.path.name}")
    else:
        for name, value in {**shown.pop("run"), **shown}.items():
            echo(f"{name:20} {value}")


@runs_app.command("remove")
def runs_remove(
    run: Annotated[list[str], typer.Argument(help="Hashes, or beginnings of them.")],
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
    if json_:
        print_json({"removed": [folder.path.name for folder in found]})
    elif not quiet:
        echo("removed: " + ", ".join(folder.path.name for folder in found))


@runs_app.command("condense", short_help="All finished runs as one line of text each.")
def runs_condense(
    path: Annotated[Path, typer.Argument(help="The .jsonl file to write, or to add to.")],
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """All finished runs of the store as one line of text each, to be published or copied.

    Example: fedskew runs condense results/paper/mine.jsonl
    """
    from fedskew.runs.results import stored, write_lines

    problems: list[str] = []
    found = list(stored(open_store(runs), problems))
    lines = write_lines(path, found)
    for problem in problems:
        note(f"left out: {problem}")
    if json_:
        print_json({"file": str(path), "added": len(found), "lines": lines, "left_out": problems})
    elif not quiet:
        echo(f"written: {path}, {lines} runs")


def _listed(folder: "Folder") -> dict[str, Any]:
    from fedskew.runs.store import StoreError

    try:
        run, short, records, saved = folder.run(), folder.short(), folder.records(), folder.saved()
    except StoreError as error:
        return {"hash": folder.path.name, "state": "unreadable", "progress": "", "problem": str(error)}
    done = len(records)
    rounds = folder.aim(done)
    measured = [record["accuracy"] for record in records if record["accuracy"] is not None]
    diverged = bool(records and records[-1]["diverged"])
    kept_whole, ended = saved >= min(done, rounds), diverged or done >= rounds
    state = "unfinished" if not (kept_whole and ended) else "diverged" if diverged else "done"
    kept = {"algorithm": short["algorithm"], "title": short["title"], "seed": run["seed"]}
    accuracy = measured[-1] if measured else None
    return {
        "hash": folder.path.name,
        **kept,
        "progress": f"{done}/{rounds}",
        "accuracy": accuracy,
        "state": state,
    }
