"""`fedskew paper`: any table or figure of the paper, ours next to the printed one."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedskew.cli.options import DataDir, Jobs, Json, Quiet, Runs, Target, check_jobs, checked_target, open_store
from fedskew.cli.paper_request import (
    RESULTS,
    chosen,
    every_item,
    extended,
    known_results,
    listed,
    named_item,
    say_no_folder,
    say_where_else,
)
from fedskew.cli.paper_view import (
    asked_again,
    figure_text,
    formatted,
    of_the_paper,
    print_map,
    report_problems,
    table_text,
    time_text,
    where_runs_are,
)
from fedskew.cli.paper_work import do_missing, unsettled
from fedskew.cli.shown_as import Style
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, echo, print_json, say, say_written
from fedskew.core.checks import check_choice

if TYPE_CHECKING:
    from fedskew.cli.documents import PaperRuns, UndoneRuns

paper_app = typer.Typer(
    help="Tables and figures of the paper: list, run, show, map.", rich_markup_mode=None, no_args_is_help=True
)

Item = Annotated[str, typer.Argument(help="table1 ... table7, figure1 ... figure7; `fedskew paper list` shows them.")]
Cells = Annotated[
    list[str] | None,
    typer.Option("--cells", help="Only cells with this name or part of it (cifar10, shards), separated by commas."),
]
Methods = Annotated[
    list[str] | None, typer.Option("--methods", help="Only these methods, separated by commas; can be repeated.")
]
ShownMethods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        help="Only these methods, separated by commas; can be repeated; or all.  [default: in a terminal the paper's "
        "and fedla, else all]",
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", help="stated | usual | drift | tuned | FILE.toml")]
Rounds = Annotated[
    int | None, typer.Option("--rounds", help="Fewer rounds than the paper; results are marked as shortened.")
]
Device = Annotated[str, typer.Option("--device", help="cpu | cuda | cuda:N")]
Precision = Annotated[str | None, typer.Option("--precision", help="fp32 | tf32 | bf16 | fp64  [default: as in `run`]")]
ShownPrecision = Annotated[
    str | None, typer.Option("--precision", help="Only runs in this arithmetic.  [default: what most runs have]")
]
StandIn = Annotated[bool, typer.Option("--stand-in", help="Use small data that ship with the package, to try it out.")]
Published = Annotated[
    Path, typer.Option("--results", help="Folder of published results, relative to the current folder.")
]
Extend = Annotated[
    bool,
    typer.Option(
        "--extend",
        help="Only what the tables lack as `paper show` prints them, in the length and arithmetic of their cells. "
        "Published runs count as done; later methods get more seeds where they have one.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(
        "--within",
        help="With --extend: more seeds only for methods at most this many points from FedAvg or from the best one.",
    ),
]
Shard = Annotated[str, typer.Option("--shard", help="k/n: only the k-th of n disjoint shares of the runs.")]


@paper_app.command("list", short_help="Tables and figures, what is done, and how long the rest takes.")
def paper_list(
    device: Device = "cpu",
    profile: Annotated[
        str | None, typer.Option(help="stated | usual | drift | tuned | FILE.toml  [default: those with runs]")
    ] = None,
    precision: ShownPrecision = None,
    published: Published = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """All tables and figures, how much of each is done, and how long the rest takes on this device.

    Example: fedskew paper list --device cuda
    """
    from fedskew.paper import ITEMS
    from fedskew.paper.estimate import Speeds, device_name
    from fedskew.paper.profiles import PROFILES

    results = known_results(open_store(runs), published)
    speeds = Speeds(results, device_name(device))
    choices = [
        chosen(profile=name, device=device, precision=precision) for name in ([profile] if profile else PROFILES)
    ]
    rows = [row for item in ITEMS.values() for row in listed(item, choices, results, speeds)]
    if json_:
        print_json(rows)
        return
    if quiet:
        echo("\n".join(ITEMS))
        return
    grid = Grid("name", "what", "profile", "runs", "done", "shortened", "time left")
    for row in rows:
        done = f"{row['done']}" + (", not measured" if row["measured"] is False else "")
        left = time_text(row["seconds_left"], row["of_unknown_time"])
        shown = [row["name"], row["title"], row["profile"], row["runs"], done, row["shortened"], left]
        grid.add_row(*map(str, shown))
    console().print(grid)
    say(
        "five seeds; done in this store or published (`paper run` repeats published runs, `--extend` does not), in the "
        f"arithmetic of most runs; time left on {device_name(device)}, by runs of the same kind there or published"
        + ("; no estimate: no such run on this device yet" if any(row["of_unknown_time"] for row in rows) else "")
    )
    if not any(row["done"] or row["shortened"] for row in rows):
        say_no_folder(published)


@paper_app.command("run")
def paper_run(
    item: Annotated[str, typer.Argument(help="table1 ... table7, figure1 ... figure7, or all.")],
    cells: Cells = None,
    methods: Methods = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, starting at 0.")] = 5,
    rounds: Rounds = None,
    profile: ProfileName = "stated",
    device: Device = "cpu",
    precision: Precision = None,
    shard: Shard = "1/1",
    jobs: Jobs = 1,
    extend: Extend = False,
    within: Within = None,
    stand_in: StandIn = False,
    data_dir: DataDir = None,
    published: Published = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Run what is not done yet of a table, a figure or `all`. You can stop it at any time; the same command resumes.

    Example: fedskew paper run table1 --cells cifar10/dirichlet:0.1 --methods fedavg,fedlc --seeds 3 --device cuda
    """
    check_jobs(jobs)
    if within is not None and not extend:
        raise ValueError(f"within is {within}; allowed with --extend only")
    whole = every_item(cells, methods) if item == "all" else named_item(item)
    asked, store = extended(item, within) if extend else whole, open_store(runs)
    choice = chosen(cells, methods, seeds, rounds, profile, device, precision, data_dir, stand_in)
    done, problems = do_missing(asked, choice, shard, store, published, jobs, show=not (json_ or quiet))
    waits = unsettled(asked, choice, known_results(store, published))
    if json_:
        failed: list[UndoneRuns] = [
            {"runs": [run.hash for run in p.runs], "reason": p.reason, "busy": p.busy} for p in problems
        ]
        document: PaperRuns = {"done": [run.hash for run in done], "problems": failed}
        print_json(document)
    elif not (quiet or done or problems or waits):
        first, what = ("table1", "the first table") if item == "all" else (item, "it")
        again = asked_again(first, profile, runs, stand_in=stand_in)
        say(f"nothing left to do; `fedskew paper show {again}` shows {what}")
    report_problems(problems, waits)


@paper_app.command("show")
def paper_show(
    item: Item,
    cells: Cells = None,
    methods: ShownMethods = None,
    rounds: Annotated[
        int | None, typer.Option(help="Only runs of this many rounds.  [default: what most runs have]")
    ] = None,
    profile: ProfileName = "stated",
    precision: ShownPrecision = None,
    format: Annotated[str, typer.Option(help="terminal | markdown | latex | csv | json")] = "terminal",
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; a figure is drawn as OUT.png and OUT.svg.")
    ] = None,
    style: Style = "screen",
    target: Target = None,
    stand_in: StandIn = False,
    published: Published = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Our results next to the paper's.

    They come from the store and from published results.

    Example: fedskew paper show table4 --format markdown
    """
    from fedskew.report.style import drawn_for

    shown = named_item(item)
    named = None if methods == ["all"] else methods
    choice = chosen(cells, named, 1, rounds, profile, precision=precision, stand_in=stand_in)
    choice, store = replace(choice, target=checked_target(target)), open_store(runs)
    results = known_results(store, published)
    rows = shown.rows(results, choice)
    if not any(row.get("ours", row) for row in rows):
        say_no_folder(published)
    if not (json_ or quiet):
        say_where_else(shown, choice, results, rows)
    title = f"{shown.title}, profile {profile}" + (", STAND-IN DATA" if stand_in else "")
    figure = hasattr(shown, "draw")
    if figure and out is not None:
        with drawn_for(style):
            made = shown.draw(rows, out, title)
        say_written(made)
        return
    if figure and format not in ("terminal", "json"):
        raise ValueError(f"format is {format!r}; allowed for a figure: terminal, json, or --out FILE.png")
    asked = asked_again(item, profile, runs, stand_in=stand_in)
    if json_ or format != "terminal":
        text = formatted("json" if json_ else format, rows, title, target)
    elif figure:
        text = figure_text(shown, rows, results, title, asked)
    else:
        rows, notes = (rows, []) if methods else of_the_paper(shown, rows)
        notes.append(where_runs_are(asked, rows, store, published))
        text = table_text(rows, title, target, notes, quiet=quiet)
    _put(text, out)


def _put(text: str, out: Path | None) -> None:
    from fedskew.core.files import write_whole

    if out is None:
        echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text.encode())
    say_written([out])


@paper_app.command("map", short_help="What FedLC's gain over FedAvg depends on.")
def paper_map(
    cell: Annotated[str, typer.Option(help="A cell of table 1 or 2.")] = "cifar10/dirichlet:0.1",
    part: Annotated[str, typer.Option(help="margin | around | all")] = "all",
    taus: Annotated[str, typer.Option(help="Values of tau, separated by commas.")] = "",
    rounds: Annotated[int | None, typer.Option(help="Rounds at one local epoch.  [default: 100]")] = None,
    device: Device = "cpu",
    precision: Precision = None,
    shard: Shard = "1/1",
    show: Annotated[bool, typer.Option("--show", help="Only show existing runs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw the map as OUT.png and OUT.svg.")] = None,
    style: Style = "screen",
    stand_in: StandIn = False,
    data_dir: DataDir = None,
    published: Published = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Find out what FedLC's gain over FedAvg depends on: do the runs, one seed each, and summarise them.

    Example: fedskew paper map --cell cifar10/dirichlet:0.1 --device cuda --out map.png
    """
    from fedskew.paper import mapped
    from fedskew.paper.map import PARTS, Map
    from fedskew.report.style import drawn_for

    check_choice("part", part, (*PARTS, "all"))
    try:
        values = tuple(float(text) for text in taus.split(",")) if taus else ()
    except ValueError:
        raise ValueError(f"taus is {taus!r}; allowed: numbers separated by commas, for example 1,2,5") from None
    asked = Map(mapped(cell), cell, values, PARTS if part == "all" else (part,))
    choice = chosen(None, None, 1, rounds, "stated", device, precision, data_dir, stand_in)
    store = open_store(runs)
    problems = [] if show else do_missing(asked, choice, shard, store, published, show=not (json_ or quiet))[1]
    results = known_results(store, published)
    with drawn_for(style):
        print_map(asked, choice, results, out, json_=json_, quiet=quiet)
    report_problems(problems, None if show else unsettled(asked, choice, results))
