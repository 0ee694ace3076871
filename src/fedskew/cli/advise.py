"""`fedskew advise`: from label counts to methods worth trying."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from fedskew.cli.advice_document import Advice
from fedskew.cli.options import Json, Quiet, Runs, open_store
from fedskew.cli.terminal.progress import echo, print_json, say, say_command

Counts = Annotated[
    str,
    typer.Argument(
        help="A CSV of clients x classes, a partition card (`fedskew inspect --json`), or a run: its folder, its hash "
        "or the beginning of it."
    ),
]


def advise_command(
    counts: Counts,
    local_epochs: Annotated[int | None, typer.Option(help="Only evidence with this many local epochs.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Only evidence with this client momentum.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Your data set: cifar10, npz:PATH, folder:PATH.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All settings and methods, not only the first.")] = False,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Which methods help on a federation with these label counts: from your own runs on this split, and from published
    runs on data of the same kind under similar skew.

    Example: fedskew advise counts.csv
    """
    from fedskew.advice.command import source, try_command
    from fedskew.advice.evidence import load, own_settings
    from fedskew.advice.findings import advise
    from fedskew.advice.kinds import kind_of
    from fedskew.advice.text import lines, training, verdict
    from fedskew.data import resolve_dataset
    from fedskew.partition.count_file import read_counts

    path = _file(counts, runs)
    table, card = read_counts(path)
    if "note" in card and not card.get("counts"):
        say(card["note"], err=True)
    origin = source(path, card)
    known = origin.get("dataset")
    data = resolve_dataset(dataset).text if dataset else None if known is None else str(known)
    own, problems = own_settings(open_store(runs), table, data)
    for problem in problems:
        say(f"left out: {problem}", err=True)
    if data is None and own:  # equal label counts in the store: the user's own data
        origin = {name: own[0][name] for name in ("dataset", "partition", "model")}
        data = known = own[0]["dataset"]
    kind = kind_of(data, origin.get("model") if data == known else None)
    advice = advise(table, load(), own, kind, data, local_epochs=local_epochs, momentum=momentum)
    suggested = try_command(advice, origin, dataset)
    command = None if suggested is None else shlex.join(suggested.words)
    if json_:
        told = {"verdict": verdict(advice), "training": training(advice), "command": command, "methods": advice.methods}
        print_json(cast(Advice, {**told, **asdict(advice)}))
        return
    if not quiet:
        for line in lines(advice, whole=all_):
            say(line, under=4 if line.startswith("[") else 0)
    if suggested is not None and not quiet:
        echo("\nTry it:")
        say_command(suggested.words)
        for line in suggested.notes:
            say(f"  {line}")
    elif command:
        echo(command)


def _file(counts: str, runs: str | None) -> Path:
    """The file of counts; for a run, given by its folder or the beginning of its hash, its partition card."""
    path = Path(counts)
    if not path.exists() and set(counts) <= set("0123456789abcdef"):
        path = open_store(runs).find(counts).path
    card = path / "partition.json"
    if (path / "run.json").exists() and not card.exists():
        raise ValueError(f"{path} has no label counts: the nodes of a federation keep theirs; allowed: a CSV with them")
    return card if path.is_dir() else path
