"""`fedskew inspect`: which client holds which labels."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from fedskew.cli.documents import PartitionCard
from fedskew.cli.options import Json, Quiet, build_run, run_options
from fedskew.cli.shared import decode
from fedskew.cli.shown_as import Style
from fedskew.cli.terminal.progress import echo, print_card, print_json

_PARTITION_OPTIONS = ("dataset", "partition", "clients", "seed", "data_dir")


@run_options(*_PARTITION_OPTIONS)
def inspect_command(
    fields: dict[str, Any],
    out: Annotated[Path | None, typer.Option(help="Draw the partition as OUT.png and OUT.svg.")] = None,
    style: Style = "screen",
    export: Annotated[Path | None, typer.Option(help="Write the split as JSON, for --partition replay:FILE.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which client holds which labels: label counts, missing classes and skew of a partition.

    Example: fedskew inspect --dataset digits --partition dirichlet:0.1 --clients 10 --out split.png
    """
    from fedskew import partition
    from fedskew.report import figures
    from fedskew.report.style import drawn_for
    from fedskew.simulation.plan import build_federation, describe_partition

    run = build_run(fields, None, {})
    decode(run, enabled=not (json_ or quiet))
    federation = build_federation(run)
    card = describe_partition(run, federation)
    with drawn_for(style):
        made = figures.rectangles(out, card, f"{run.title}, seed {run.seed}") if out else []
    if export:
        partition.export(export, run.partition, federation.indices)
        made.append(export)
    if json_:
        document = {**card, "dataset": run.dataset, "seed": run.seed, "files": [str(path) for path in made]}
        print_json(cast(PartitionCard, document))
    elif quiet:
        echo(card["hash"])
    else:
        print_card(run, card)
        if made:
            echo("written: " + ", ".join(str(path) for path in made))
