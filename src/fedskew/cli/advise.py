"""`fedskew advise`: from label counts to methods worth trying."""

from pathlib import Path
from typing import Annotated

import typer

from fedskew.cli.options import Json, Quiet, Runs, open_store
from fedskew.cli.terminal.progress import echo, print_json

Counts = Annotated[
    str,
    typer.Argument(
        help="A CSV of clients x classes, a partition card (`fedskew inspect --json`), or a run: its folder, its hash "
        "or the beginning of it."
    ),
]


def advise_command(
    counts: Counts,
    local_epochs: Annotated[int | None, typer.Option(help="Only evidence with so many local epochs.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Only evidence with this client momentum.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Your data set, for the command: npz:PATH, folder:PATH.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """How skewed label counts are, what that means, and which methods did well under similar skew.

    Example: fedskew advise counts.csv
    """
    from fedskew.advice.command import methods, notes, places, shown, source, try_command, untried
    from fedskew.advice.evidence import load
    from fedskew.advice.findings import advise
    from fedskew.advice.text import lines
    from fedskew.partition.count_file import read_counts

    path = _file(counts, runs)
    table, card = read_counts(path)
    if "note" in card and not card.get("counts"):
        echo(card["note"], err=True)
    advice = advise(table, load(), local_epochs=local_epochs, momentum=momentum)
    advice["untried"], advice["try"] = untried(advice), methods(advice)[1:]
    words = try_command(advice, source(path, card), dataset)
    advice["command"] = None if words is None else shown(words)
    advice["notes"] = [] if words is None else notes(advice)
    if json_:
        print_json(advice)
        return
    if not quiet:
        echo("\n".join([*lines(advice), "", *advice["notes"]]).rstrip())
    if words is not None:
        echo(advice["command"] if quiet else f"\nTry it:\n  {advice['command']}")
    for line in places(words or ()) if not quiet else ():
        echo(f"  where {line}")


def _file(counts: str, runs: str | None) -> Path:
    """The file of counts; of a run, named by its folder or the beginning of its hash, its partition card."""
    path = Path(counts)
    if not path.exists() and set(counts) <= set("0123456789abcdef"):
        path = open_store(runs).find(counts).path
    return path / "partition.json" if path.is_dir() else path
