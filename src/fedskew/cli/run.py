"""`fedskew run`: one method on one federation."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from fedskew.cli.options import (
    RUN_OPTIONS,
    Algorithm,
    File,
    Json,
    Quiet,
    Runs,
    Track,
    Watch,
    algorithm_names,
    build_run,
    from_toml,
    interruption,
    open_store,
    run_options,
)
from fedskew.cli.shared import decode, looking_for_rounds, result_of
from fedskew.cli.terminal.progress import Spent, echo, percent_of, print_json, print_result, round_progress, say
from fedskew.core.ranks import expected, rank

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.simulation.records import RoundRecord


@run_options(*RUN_OPTIONS)
def run_command(
    fields: dict[str, Any],
    file: File = None,
    algorithm: Algorithm = None,
    watch: Watch = False,
    track: Track = None,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Train one method on one federation.

    Example: fedskew run --dataset digits --algorithm fedlc --rounds 60 --lr 0.1 --batch-size 16
    """
    from fedskew.cli.terminal.watch import watching
    from fedskew.diagnostics.quick_drift import drift_measures
    from fedskew.simulation.session import simulate
    from fedskew.tracking import check, tracking

    names, in_file = algorithm_names(algorithm), from_toml(file).get("algorithm")
    check(track or ())
    several = names or (in_file if isinstance(in_file, list) else [])
    if len(several) > 1:
        raise ValueError(f"run takes one algorithm, not {len(several)}; fedskew compare takes several")
    run = build_run(fields, file, {"algorithm": names[0]} if names else {})
    store, hash = open_store(runs), run.hash  # with the user's files as they are now
    show = not (json_ or quiet or rank())
    class_names = decode(run, enabled=show)
    if rank():
        _follow(simulate(run))
        return
    coming = simulate(run, [drift_measures] if (watch or track) and expected() == 1 else [], store=store)
    records, spent = list["RoundRecord"](), Spent()
    title = f"{run.short_algorithm} on {run.title}, run {hash}"
    progress = watching(title, run.rounds, enabled=show) if watch else round_progress(run.rounds, enabled=show)
    with looking_for_rounds(store, [hash]), progress as step, tracking(track or (), run) as log:
        for record in coming:
            if show and not records:  # an invalid request fails before anything is printed
                say(title)
            records.append(record)
            spent.add(record)
            step(run.short_algorithm, record)
            log(record)
            interruption.check()
    folder = store.folder(hash)
    result: RunResult = {**result_of(folder, [record.as_dict() for record in records]), "run": run.model_dump()}
    if json_:
        print_json(result)
    elif quiet:
        echo(f"{'diverged' if result['diverged'] else percent_of(result['accuracy'])} {hash}")
    else:
        print_result(result, folder, spent, class_names, engine=watch)
        if not result["diverged"]:
            where = f" --runs {shlex.quote(runs)}" if runs else ""
            echo(f"next: fedskew diagnose {hash[:8]}{where}, fedskew report{where}")
    if result["diverged"]:
        raise typer.Exit(1)


def _follow(records: "Iterator[RoundRecord]") -> None:
    """The part of a rank other than 0; rank 0 has the store and prints."""
    from torch import distributed

    try:
        for _ in records:
            interruption.check()
    except ValueError as error:
        if distributed.is_initialized():
            raise  # all ranks have this error
        raise RuntimeError(str(error)) from error
