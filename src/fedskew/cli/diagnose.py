"""`fedskew diagnose`: what label skew does to a stored run's model."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew.cli.options import DataDir, Json, Quiet, Runs, open_store
from fedskew.cli.shown_as import Style
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, echo, note, percent_of, print_json, say
from fedskew.core.files import check_folder


def diagnose_command(
    run: Annotated[str, typer.Argument(help="The run's hash, its beginning, or the run's folder.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the JSON and figures.  [default: diagnosis/RUN]")] = None,
    clients: Annotated[int, typer.Option(help="How many of the cohort's clients to report.")] = 20,
    alone: Annotated[
        bool, typer.Option("--alone", help="Also train these clients each by itself, as long as the run took.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Also print drift and the deviation bound; JSON and figures always have them.")
    ] = False,
    style: Style = "screen",
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
    data_dir: DataDir = None,
) -> None:
    """What label skew does to a run's model: what clients get, what they forget, calibration; also drift and bounds.

    It trains one local round from the run's checkpoint, on a copy; the run itself does not change.

    Example: fedskew diagnose 3fa9 --out diagnosis
    """
    from fedskew.core.files import write_whole
    from fedskew.diagnostics import diagnose
    from fedskew.report.diagnostic_figures import diagnostic_figures
    from fedskew.report.style import drawn_for

    folder = open_store(runs).find(run)
    target = out or Path("diagnosis") / folder.path.name[:8]
    check_folder(target)
    file = target / "diagnosis.json"
    _note_earlier(file, folder.path.name)
    document = diagnose(folder, client_limit=clients, by_themselves=alone, data_dir=data_dir)
    try:
        folder.write_diagnosis(document)
    except OSError as error:  # a store may be somebody else's; what was measured is still worth showing
        note(f"cannot write to {folder.path}: {error.strerror}; `fedskew report` will not show this diagnosis")
    if not (json_ or quiet):
        _print(document, whole=all_)
    target.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(document, allow_nan=False).encode())
    with drawn_for(style):
        made = [file, *diagnostic_figures(target, document)]
    if json_:
        print_json({**document, "files": [str(path) for path in made]})
    elif quiet:
        echo(str(file))
    else:
        say(f"written: {file}, and figures beside it")
        if not all_:
            say("`--all` also prints drift and the deviation bound (theorem 1)")


def _note_earlier(file: Path, hash: str) -> None:
    """Say so before any work if the folder holds the diagnosis of another run."""
    try:
        earlier = json.loads(file.read_bytes())["run_hash"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return
    if earlier != hash:
        note(f"{file.parent} holds the diagnosis of run {earlier}, which this one replaces; --out names another folder")


def _print(document: dict[str, Any], *, whole: bool) -> None:
    say(
        f"{document['title']}, {document['algorithm']}: global model of round {document['round']}, "
        f"run {document['run_hash']}"
    )
    first = next(iter(document["methods"].values()))
    shown, cohort = len(first["class_accuracy"]["clients"]), len(first["drift"]["clients"])
    if shown < cohort:
        more = "; drift: all" if whole else ""
        say(f"the first {shown} of the cohort's {cohort} clients (--clients){more}")
    echo("")
    home = document["at_home"]
    where = "on each client's own test examples" if home["own_tests"] else "with labels as frequent as at the client"
    say(f"What clients get: accuracy {where}")
    console().print(_at_home(home))
    say("Test accuracy by kind of class before and after a client's local update")
    console().print(_kinds(document["methods"]))
    if whole:
        say("Drift: how far clients move, and in how different directions")
        console().print(_drift(document["methods"]))
        say("Deviation bound (theorem 1): pairs of a majority class j and another class r")
        console().print(_bounds(document["methods"]))
        say("above: n_j/n_r > D_jr; on examples of r, its score falls: dw_r.h_r < 0, that of j rises: dw_j.h_r > 0")
        echo("")
    calibration = document["calibration"]
    say(
        f"expected calibration error {percent_of(calibration['ece'])} %, "
        f"mean confidence less accuracy {percent_of(calibration['overconfidence'])} %"
    )
    say(_mended(document["repairs"]))


def _mended(repairs: dict[str, float | None]) -> str:
    """`accuracy 92.68 %; it would be 94.93 % with the last layer fitted to all clients' training examples`"""
    parts = {"norms": "batch norm's statistics", "head": "the last layer", "both": "both"}
    told = [f"{percent_of(repairs[name])} % with {part}" for name, part in parts.items() if repairs[name] is not None]
    more = f"; it would be {', '.join(told)} fitted to all clients' training examples" if told else ""
    return f"accuracy {percent_of(repairs['as_is'])} %{more}"


def _at_home(found: dict[str, Any]) -> Grid:
    from fedskew.diagnostics.kinds import mean

    ways = {
        "the global model": found["global"],
        "with the client's label counts as a prior": found["prior"],
        "with its counts over everybody's": found["relative"],
        **{f"after a local update with {method}": each for method, each in found["after"].items()},
        "trained by the client alone": found["alone"],
    }
    grid = Grid("model", "mean %", "lowest client %")
    for way, each in ways.items():
        if each is not None:
            lowest = min((value for value in each if value is not None), default=None)
            grid.add_row(way, percent_of(mean(each)), percent_of(lowest))
    return grid


def _kinds(methods: dict[str, Any]) -> Grid:
    grid = Grid("local update", "classes", "client-class pairs", "before %", "after %", "aggregated %", keys=2)
    for name, found in methods.items():
        effect = found["class_accuracy"]
        groups = {**effect["groups"], "all": {"pairs": "", **effect["accuracy"]}}
        for kind, group in groups.items():
            cells = (percent_of(group[when]) for when in ("before", "after", "aggregated"))
            grid.add_row(name, kind, str(group["pairs"]), *cells)
    return grid


def _bounds(methods: dict[str, Any]) -> Grid:
    shown = ("above bound %", "minority above %", "r falls %", "r falls, j rises %", "below: r falls %")
    grid = Grid("local update", "class pairs", *shown)
    for name, found in methods.items():
        summary = found["deviation"]["summary"]
        if summary is None:
            grid.add_row(name, "no softmax")
            continue
        signs = summary["signs"]
        shares = [summary["above"], summary["kinds"]["minority"]["above"], signs["above"]["update"]["own"]]
        shares += [signs["above"]["update"]["both"], signs["below"]["update"]["own"]]
        grid.add_row(name, str(summary["stated"]), *(percent_of(share) for share in shares))
    return grid


def _drift(methods: dict[str, Any]) -> Grid:
    from fedskew.diagnostics.kinds import mean

    heads = ("norm of deltas", "norm of their mean", "cosine to mean", "cosine between clients", "diversity")
    grid = Grid("local update", *heads)
    for name, found in methods.items():
        drift = found["drift"]
        means = [mean(drift["norm"]), drift["mean_norm"], mean(drift["cosine_to_mean"]), drift["cosine"]["mean"]]
        grid.add_row(name, *("-" if value is None else f"{value:.3f}" for value in (*means, drift["diversity"])))
    return grid
