"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedskew import __version__
from fedskew.cli.advise import advise_command
from fedskew.cli.diagnose import diagnose_command
from fedskew.cli.flower import flower_app
from fedskew.cli.help_text import Commands, with_plain_help
from fedskew.cli.methods import methods_command
from fedskew.cli.options import (
    RUN_OPTIONS,
    Algorithm,
    Algorithms,
    DataDir,
    File,
    Json,
    Quiet,
    Runs,
    Target,
    Track,
    Watch,
    algorithm_names,
    build_run,
    checked_target,
    compared_names,
    interruption,
    open_store,
    run_options,
)
from fedskew.cli.paper import paper_app
from fedskew.cli.report import report_command
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import (
    byte_progress,
    console,
    echo,
    note,
    percent_of,
    print_card,
    print_comparison,
    print_data,
    print_json,
    print_result,
    round_progress,
)
from fedskew.core.ranks import expected, rank

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder
    from fedskew.simulation.records import RoundRecord

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(short_help="Runs in the store: list, show, remove, condense.", rich_markup_mode=None)
data_app = typer.Typer(help="Data files: list, verify, fetch.", rich_markup_mode=None, no_args_is_help=True)
app.add_typer(runs_app, name="runs")
app.add_typer(data_app, name="data")
app.add_typer(paper_app, name="paper")
app.add_typer(flower_app, name="flower")
app.command("methods", short_help="Every method, and what it changes of FedAvg.")(methods_command)
app.command("advise", short_help="How skewed label counts are, and what helped under such skew.")(advise_command)
app.command("diagnose", short_help="What label skew does to a stored run's model.")(diagnose_command)
app.command("report", short_help="Runs of the store as one HTML page.")(report_command)

_INTERRUPTED = 130
_PARTITION_OPTIONS = ("dataset", "partition", "clients", "seed", "data_dir")


def _version(asked: bool) -> None:
    if asked:
        echo(f"fedskew {__version__}")
        raise typer.Exit


@app.callback()
def app_callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning under label skew.

    Example: fedskew compare --dataset digits --algorithm fedavg,fedlc
    """


@app.command("run")
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
    """One method on one federation.

    Example: fedskew run --dataset digits --algorithm fedlc --rounds 60 --lr 0.1 --batch-size 16
    """
    from fedskew.cli.terminal.watch import watching
    from fedskew.diagnostics.quick_drift import drift_measures
    from fedskew.simulation.session import simulate
    from fedskew.tracking import check, tracking

    names = algorithm_names(algorithm)
    check(track or ())
    if len(names) > 1:
        raise ValueError(f"run takes one algorithm, not {len(names)}; fedskew compare takes several")
    run = build_run(fields, file, {"algorithm": names[0]} if names else {})
    store, hash = open_store(runs), run.hash  # of a user's files as they are now
    show = not (json_ or quiet or rank())
    _decode(run, enabled=show)
    if rank():
        _follow(simulate(run))
        return
    coming = simulate(run, [drift_measures] if (watch or track) and expected() == 1 else [], store=store)
    first, records = next(coming), []  # a wrong request shows before anything is printed
    title = f"{run.short_algorithm} on {run.title}, run {hash}"
    if show:
        echo(title)
    progress = watching(title, run.rounds, enabled=show) if watch else round_progress(run.rounds, enabled=show)
    with progress as step, tracking(track or (), run) as log:
        for record in chain([first], coming):
            records.append(record)
            step(run.short_algorithm, record)
            log(record)
            interruption.check()
    folder = store.folder(hash)
    result = {**_result(folder, [record.as_dict() for record in records]), "run": run.model_dump()}
    if json_:
        print_json(result)
    elif quiet:
        echo(f"{'diverged' if result['diverged'] else percent_of(result['accuracy'])} {hash}")
    else:
        print_result(result, folder)
        if not result["diverged"]:
            where = f" --runs {runs}" if runs else ""
            echo(f"next: fedskew diagnose {hash[:8]}{where}, fedskew report{where}")


@app.command("compare", short_help="Several methods side by side, over several seeds.")
@run_options(*RUN_OPTIONS)
def compare_command(
    fields: dict[str, Any],
    file: File = None,
    algorithm: Algorithms = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 1,
    target: Target = None,
    iid: Annotated[bool, typer.Option("--iid", help="The same methods on an IID split as well.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for figures and tables.")] = Path("comparison"),
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Several methods side by side, on the same data, split, first model and cohorts.

    Example: fedskew compare --dataset digits --algorithm fedavg,fedrs,fedlc --algorithm fedlc:tau=1 --seeds 5
    """
    from fedskew.report.comparison import comparison_rows, write_comparison
    from fedskew.simulation.compare import Comparison

    names, target = compared_names(algorithm, file), checked_target(target)
    comparison = Comparison.of(build_run(fields, file, {"algorithm": names[0]}), names, seeds)
    level = comparison.on_iid() if iid else None
    out.mkdir(parents=True, exist_ok=True)
    store, show = open_store(runs), not (json_ or quiet)
    some = next(iter(comparison.runs.values()))[0]
    _decode(some, enabled=show)
    parts = [comparison] if level is None else [comparison, level]
    with round_progress(some.rounds * seeds * len(comparison.runs) * len(parts), enabled=show) as step:
        for part in parts:
            for name, _, record in part.results(store):
                step(name if part is comparison else f"{name}, IID", record)
                interruption.check()
    hashes, level_hashes = comparison.hashes, level.hashes if level else None
    rows = comparison_rows(store, hashes, some.rounds, target=target, iid=level_hashes)
    made = write_comparison(store, hashes, rows, some.rounds, out, target)
    if json_:
        about = {"runs": hashes, "iid_runs": level_hashes, "target": target, "rows": rows}
        print_json({**about, "files": [str(path) for path in made]})
        return
    print_comparison(rows, f"{some.title}, {some.rounds} rounds", target, some.eval_every)
    if show:
        echo("written: " + ", ".join(str(path) for path in made))


@app.command("inspect", short_help="Who holds what: label counts and skew of a partition.")
@run_options(*_PARTITION_OPTIONS)
def inspect_command(
    fields: dict[str, Any],
    out: Annotated[Path | None, typer.Option(help="Draw the partition as OUT.png and OUT.svg.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the split as JSON, to be replayed.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Who holds what: label counts, missing classes and skew of a partition.

    Example: fedskew inspect --dataset digits --partition dirichlet:0.1 --clients 10 --out split.png
    """
    from fedskew import partition
    from fedskew.report import figures
    from fedskew.simulation.plan import build_federation, describe_partition

    run = build_run(fields, None, {})
    _decode(run, enabled=not (json_ or quiet))
    federation = build_federation(run)
    card = describe_partition(run, federation)
    made = figures.rectangles(out, card, f"{run.title}, seed {run.seed}") if out else []
    if export:
        partition.export(export, run.partition, federation.indices)
        made.append(export)
    if json_:
        print_json({**card, "dataset": run.dataset, "seed": run.seed, "files": [str(path) for path in made]})
    elif quiet:
        echo(card["hash"])
    else:
        print_card(run, card)
        if made:
            echo("written: " + ", ".join(str(path) for path in made))


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
    shown = {**_result(folder, folder.records()), "sessions": folder.sessions()}
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


@app.command("export")
def export_command(
    run: Annotated[str, typer.Argument(help="The run's hash or the beginning of it.")],
    path: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """The final model of a run, for plain PyTorch.

    Example: fedskew export 3fa9 model.safetensors
    """
    from fedskew.runs.export import export_model

    folder = open_store(runs).find(run)
    round = export_model(folder, path)
    if json_:
        print_json({"run_hash": folder.path.name, "round": round, "file": str(path)})
    elif not quiet:
        echo(f"written: {path}, the model of {folder.path.name} after round {round}")


@data_app.command("list", short_help="What is there of each data set.")
def data_list(json_: Json = False, quiet: Quiet = False, data_dir: DataDir = None) -> None:
    """What is there of each data set, how large it is and where it comes from.

    Example: fedskew data list
    """
    from fedskew.data.fetch import listing

    print_data(listing(data_dir), json_=json_, quiet=quiet)


@data_app.command("verify", short_help="Check the files that are there against their checksums.")
def data_verify(json_: Json = False, quiet: Quiet = False, data_dir: DataDir = None) -> None:
    """Check the files that are there against their official checksums; exit code 1 if one is not good.

    Example: fedskew data verify --data-dir ~/data
    """
    from fedskew.data.fetch import verify

    checked = verify(data_dir)
    print_data(checked, json_=json_, quiet=quiet)
    if any(status.state in ("other checksum", "missing") for status in checked):
        raise typer.Exit(1)


@data_app.command("fetch", short_help="Download, check and extract the files of a data set.")
def data_fetch(
    name: Annotated[str, typer.Argument(help="cifar10 | cifar100 | svhn | svhn-extra")],
    mirror: Annotated[str | None, typer.Option(help="An address below which the files have their names.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    data_dir: DataDir = None,
) -> None:
    """Download the official files of a data set, check and extract them; goes on where it broke off.

    Example: fedskew data fetch cifar10
    """
    from fedskew.data.fetch import fetch

    with byte_progress(name, enabled=not (json_ or quiet)) as report:
        paths = fetch(name, data_dir, mirror, report)
    if json_:
        print_json({"dataset": name, "files": [str(path) for path in paths]})
    elif not quiet:
        echo("there: " + ", ".join(str(path) for path in paths))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a wrong request ends with 2, a failure with 1, an interruption with 130."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if threading.current_thread() is not threading.main_thread():
        sys.exit(_guarded(given))  # only the main thread hears of signals
    interruption.seen = False
    before = {number: signal.signal(number, interruption) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = _guarded(given)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code)


def _guarded(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no ± still gets its table
    warnings.showwarning = lambda message, *_, **__: note(str(message))
    try:
        if expected() > 1 and arguments[:1] != ["run"]:
            raise ValueError(
                f"torchrun shares the work of `fedskew run`, not of {' '.join(arguments[:2]) or 'fedskew'}; "
                "`fedskew paper run --shard k/n` shares a table's runs"
            )
        command = with_plain_help(typer.main.get_command(app))
        code = command(arguments, prog_name="fedskew", standalone_mode=False)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:  # also before there is a command to be interrupted
        return _complain("interrupted; what was done is kept, the same command goes on from there", _INTERRUPTED)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            echo(error.format_message())
            return 0
        return _complain(_click_message(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has gone
        return 0
    except Exception as error:
        if os.environ.get("FEDSKEW_DEBUG"):
            raise
        return _complain(*_explained(error))


def _explained(error: Exception) -> tuple[str, int]:
    """A line for the user, and whether the request (2) or the work (1) was at fault."""
    if type(error).__name__ == "ValidationError":
        from fedskew.runs.run import explain

        return explain(error), 2  # type: ignore[arg-type]
    if _lacks_memory(error):
        return "memory does not suffice; fewer clients per round, a smaller batch size or model would need less", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
    wrong = isinstance(error, ValueError | FileNotFoundError)
    return str(error) or type(error).__name__, 2 if wrong else 1


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is an array that could not be had; PyTorch says so in words alone."""
    while error is not None and not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
        error = error.__cause__
    return error is not None


def _click_message(error: click.ClickException) -> str:
    where = getattr(error, "ctx", None)
    hint = f" (see {where.command_path} --help)" if where is not None else ""
    return error.format_message().replace("\n", " ") + hint


def _follow(records: "Iterator[RoundRecord]") -> None:
    """Another rank's part of a run; the first rank has the store and the word."""
    from torch import distributed

    try:
        for _ in records:
            interruption.check()
    except ValueError as error:
        if distributed.is_initialized():
            raise  # all ranks have this error
        raise RuntimeError(str(error)) from error


def _complain(message: str, code: int) -> int:
    """Of several ranks only the first speaks of what all of them see: a wrong request, an interruption."""
    if not rank() or code == 1:
        echo(f"fedskew: {f'rank {rank()}: ' if rank() else ''}{_shortened(message)}", err=True)
    elif code == 2:
        with suppress(KeyboardInterrupt):
            time.sleep(_FIRST_SPEAKS)
    return code


def _shortened(message: str) -> str:
    """A message that repeats a very long request, without the middle of it."""
    return message if len(message) <= 2 * _LONGEST else f"{message[:_LONGEST]} ... {message[-_LONGEST:]}"


_LONGEST = 500
_FIRST_SPEAKS = 20.0
"""Seconds: torchrun ends all ranks with the first that ends, which must not be before the first rank has spoken."""


def _decode(run: "Run", *, enabled: bool) -> None:
    """Images in files are decoded once; show how far that is."""
    if run.dataset.partition(":")[0] in ("imagenet12", "folder"):
        from fedskew.data import load_dataset

        with byte_progress("images", enabled=enabled) as report:
            load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report)


def _result(folder: "Folder", records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The documented result of a run: what `run --json` prints."""
    from fedskew.runs.summary import summarise

    run = folder.run()
    result = summarise(run, records, folder.card())
    return {"run_hash": folder.path.name, **result, "run": run, "folder": str(folder.path)}


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
