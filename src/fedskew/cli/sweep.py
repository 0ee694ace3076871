"""`fedskew sweep`: a run at many settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedskew.cli.options import (
    RUN_OPTIONS,
    Algorithms,
    Jobs,
    Json,
    Quiet,
    Runs,
    check_jobs,
    open_store,
    run_options,
)
from fedskew.cli.shared import check_some_finished, decode, trained
from fedskew.cli.shown_as import Style
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, print_json, say, say_over_seeds, say_written
from fedskew.cli.values import Assignments, Rest, requested
from fedskew.core.files import make_folder

if TYPE_CHECKING:
    from fedskew.cli.documents import SweptSettings
    from fedskew.report.swept import SweepTable


@run_options(*RUN_OPTIONS, several=True)
def sweep_command(
    fields: dict[str, list[str]],
    rest: Rest = None,
    algorithm: Algorithms = None,
    set_: Assignments = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, starting at --seed.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the figure and tables.")] = Path("sweep"),
    style: Style = "screen",
    jobs: Jobs = 1,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Train every combination of several values. Any option and any argument of a method takes several.

    Commas separate values; in a spec, only before a known name. An option can also be repeated.

    Example: fedskew sweep --dataset digits --algorithm fedlc --tau 0.5,1,2,5,10 --lr 0.03,0.1 --seeds 3
    """
    from fedskew.report.style import drawn_for
    from fedskew.report.swept import SweepTable, stored_runs
    from fedskew.simulation.sweep import Sweep

    check_jobs(jobs)
    asked = requested({**fields, **({"algorithm": algorithm} if algorithm else {})}, rest, set_)
    sweep = Sweep.of(asked.fields, asked.values, seeds)
    if not any(len(values) > 1 for values in asked.values.values()):
        raise ValueError("sweep needs an option with several values; for example --algorithm fedlc --tau 0.5,1,2,5")
    make_folder(out)
    store, show = open_store(runs), not (json_ or quiet)
    decode(sweep.settings[sweep.reference].runs[0], enabled=show)
    trained([((name, ""), group) for name, group in sweep.groups], store, jobs=jobs, show=show)
    swept = SweepTable.of(sweep.settings, stored_runs(store, sweep.settings), sweep.reference, sweep.title)
    with drawn_for(style):
        made = swept.write(out)
    if json_:
        print_json(cast("SweptSettings", {**swept.as_dict(), "files": [str(path) for path in made]}))
    else:
        _print(swept, seeds)
    if show:
        say_written(made)
    check_some_finished(swept.rows)


def _print(swept: "SweepTable", seeds: int) -> None:
    say_over_seeds(swept.title, seeds)
    console().print(Grid.of(*swept.table(), keys=len(swept.names)))
    if swept.measure == "validation_accuracy":
        say("differences are of accuracy on held-out examples; `fedskew tune` chooses on them")
    else:
        say("these are accuracies on the test set; to choose a setting, use `fedskew tune` or --validation 0.1")
