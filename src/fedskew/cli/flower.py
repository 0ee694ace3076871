"""`fedskew flower`: a run as a real federation."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from click.core import ParameterSource

from fedskew.cli.documents import WrittenFiles
from fedskew.cli.options import RUN_OPTIONS, Algorithm, Json, Quiet, algorithm_names, build_run, open_store, run_options
from fedskew.cli.terminal.progress import echo, print_json, say_written

if TYPE_CHECKING:
    from fedskew.runs.run import Run

flower_app = typer.Typer(help="A run as a real federation with Flower.", rich_markup_mode=None, no_args_is_help=True)
_OPTIONS = tuple(name for name in RUN_OPTIONS if name not in ("engine", "device", "data_dir"))
Federated = Annotated[
    str | None,
    typer.Option(
        "--runs",
        help="Folder of the store; a run that was simulated in it cannot be trained there.  "
        "[default: $FEDSKEW_RUNS or federated/]",
    ),
]
_START: dict[str, Any] = {"clients": 10, "rounds": 10, "lr": 0.1, "batch_size": 16}  # learns digits in a minute


@flower_app.command("init", short_help="Write a runnable Flower app.")
@run_options(*_OPTIONS, **_START)
def init_command(
    fields: dict[str, Any],
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    algorithm: Algorithm = None,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Federated = None,
) -> None:
    """Write a runnable Flower app: pyproject.toml with the run, and a few lines of Python.

    Example: fedskew flower init app --dataset digits --partition dirichlet:0.1 --algorithm fedlc
    """
    from fedskew.flower.app import check_run, write_app
    from fedskew.flower.rules import Rules

    names = algorithm_names(algorithm)
    if len(names) > 1:
        raise ValueError(f"a federation trains one algorithm, not {len(names)}")
    run = build_run(fields | _own_clients(fields), None, {"algorithm": names[0]} if names else {})
    check_run(run)
    store = open_store(runs or os.environ.get("FEDSKEW_RUNS") or "federated")
    written = write_app(folder, run, Rules(store=str(store.root.resolve())))
    _tell(written, _next_steps(run, folder, store.root), json_=json_, quiet=quiet)


def _next_steps(run: "Run", folder: Path, store: Path) -> str:
    """Commands that start the app and show its run. Data that only nodes have cannot be simulated."""
    from fedskew.flower.app import keeps_states

    app, look = shlex.quote(str(folder)), f"fedskew runs list --runs {shlex.quote(str(store))}"
    if run.dataset.startswith("nodes:"):
        state = " state-dir='/path'" if keeps_states(run) else ""
        data = f"client-id=0 data='/path/own.npz'{state}\", to client-id={run.clients - 1}"
        start = f'start {run.clients} nodes with their own data: flower-supernode ... --node-config "{data}'
        return f"next, {start} (docs/flower.md)\nthen: flwr run {app} deployment --stream, and {look}"
    nodes = f"num-supernodes={run.clients} client-resources-num-cpus=1"
    start = f"flwr run {app} --stream --federation-config '{nodes}'"
    return f"next, simulate with Flower: {start}\nthen, because flwr exits with 0 even if a run failed: {look}"


def _own_clients(fields: dict[str, Any]) -> dict[str, int]:
    """The number of clients that the data's file names, if none was asked for."""
    from fedskew.data import own_clients

    asked = click.get_current_context().get_parameter_source("clients") is not ParameterSource.DEFAULT
    if asked or fields.get("partition") != "natural":
        return {}
    found = own_clients(fields.get("dataset", "digits"))
    return {} if found is None else {"clients": found}


@flower_app.command("certificates", short_help="Write certificates and node keys for TLS.")
def certificates_command(
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address of the SuperLink's machine; can be repeated.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many node keys.")] = 3,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write an authority's certificate, a server certificate and a key per node, for TLS and node authentication.

    Example: fedskew flower certificates keys --host fl.example.org --nodes 3
    """
    from fedskew.flower.certificates import make_certificates

    written = make_certificates(folder, host or (), nodes, days)
    _tell(written, "copy each node key to its node, with ca.crt; server.key stays here", json_=json_, quiet=quiet)


def _tell(written: list[Path], more: str, *, json_: bool, quiet: bool) -> None:
    if json_:
        document: WrittenFiles = {"files": [str(path) for path in written]}
        print_json(document)
    elif not quiet:
        say_written(written)
        echo(more)
