"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

import io
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated

import click
import typer
import typer.core

from fedskew import __version__
from fedskew.cli.advise import advise_command
from fedskew.cli.compare import compare_command
from fedskew.cli.data import data_app
from fedskew.cli.diagnose import diagnose_command
from fedskew.cli.export import export_command
from fedskew.cli.flower import flower_app
from fedskew.cli.inspect import inspect_command
from fedskew.cli.methods import methods_command
from fedskew.cli.options import SEVERAL, interruption
from fedskew.cli.paper import paper_app
from fedskew.cli.report import report_command
from fedskew.cli.run import run_command
from fedskew.cli.runs import runs_app
from fedskew.cli.sweep import sweep_command
from fedskew.cli.terminal.progress import echo, note, say
from fedskew.cli.tune import tune_command
from fedskew.cli.values import TAKES_ARGUMENTS
from fedskew.core.ranks import expected, rank

_COMMANDS: dict[str, tuple[Callable[..., None] | typer.Typer, str | None]] = {
    "run": (run_command, None),
    "compare": (compare_command, "Compare several methods over several seeds."),
    "sweep": (sweep_command, "A run at many settings: table and figure."),
    "tune": (tune_command, "Choose each method's knobs on held-out examples."),
    "inspect": (inspect_command, "Who holds what: label counts and skew of a partition."),
    "diagnose": (diagnose_command, "What label skew does to a stored run's model."),
    "methods": (methods_command, "Every method, and which parts of FedAvg it changes."),
    "advise": (advise_command, "Which methods help under these label counts."),
    "report": (report_command, "Stored runs as one HTML page."),
    "paper": (paper_app, None),
    "runs": (runs_app, None),
    "export": (export_command, None),
    "data": (data_app, None),
    "flower": (flower_app, None),
}
"""Each command or group in the order of docs/cli.md, with its line in the list; None: the first of its own help."""


class _InOrder(typer.core.TyperGroup):
    """typer would list the groups last."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)


app = typer.Typer(
    cls=_InOrder,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, (command, about) in _COMMANDS.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        settings = TAKES_ARGUMENTS if command in (sweep_command, tune_command) else None
        app.command(name, short_help=about, context_settings=settings)(command)

_INTERRUPTED = 130
_COMPLETE = "_FEDSKEW_COMPLETE"
"""Names what a shell asks for, `bash_source` first. typer's own way needs two options and reads this name otherwise."""
_LONGEST = 500
_FIRST_SPEAKS = 20.0
"""Seconds that other ranks wait: torchrun ends all ranks when one ends, and rank 0 must print its message first."""


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

    Example:

    \b
        fedskew compare --dataset digits --clients 10 --rounds 40 --lr 0.1 \\
            --batch-size 16 --algorithm fedavg,fedlc,scaffold --seeds 3
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 2 for an invalid request, 1 for a failure, 130 for an interruption."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if threading.current_thread() is not threading.main_thread():
        sys.exit(_guarded(given))  # only the main thread receives signals
    interruption.seen = interruption.in_vain = False
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
            stream.reconfigure(errors="backslashreplace")  # a terminal without ± still shows the table
    once = cache(note)  # every run of a command may warn of the same
    warnings.showwarning = lambda message, *_, **__: once(str(message))
    try:
        if expected() > 1 and arguments[:1] != ["run"]:
            raise ValueError(
                f"torchrun shares the work of `fedskew run`, not of {' '.join(arguments[:2]) or 'fedskew'}; "
                "`fedskew paper run --shard k/n` shares a table's runs"
            )
        typer.core.HAS_RICH = False  # it would escape brackets in help for rich, which does not print it
        command = typer.main.get_command(app)
        if asked := os.environ.get(_COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(command, {}, "fedskew", _COMPLETE, asked)
        code = command(arguments, prog_name="fedskew", standalone_mode=False)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:  # possibly before the command started
        kept = "no round was finished" if interruption.in_vain else "finished work is kept, the same command resumes"
        return complain(f"interrupted; {kept}", _INTERRUPTED)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            echo(error.format_message())
            return 0
        return complain(_click_message(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output is gone
        return 0
    except Exception as error:
        if os.environ.get("FEDSKEW_DEBUG"):
            raise
        return complain(*explained(error))


def explained(error: Exception) -> tuple[str, int]:
    """A line for the user, and whether the request (2) or the work (1) was at fault."""
    if _lacks_memory(error):
        return "out of memory; fewer clients per round, a smaller batch size or a smaller model would need less", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
    wrong = isinstance(error, ValueError | FileNotFoundError)
    return str(error) or type(error).__name__, 2 if wrong else 1


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is a failed allocation; PyTorch says so only in the message."""
    while error is not None and not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
        error = error.__cause__
    return error is not None


def _click_message(error: click.ClickException) -> str:
    where = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and (owners := _methods_with(error.option_name.lstrip("-"))):
        name, known = error.option_name.lstrip("-"), ", ".join(owners)
        return f"--{name} is an argument of {known}; write it after the method: --algorithm {owners[0]}:{name}=..."
    hint = f" (see {where.command_path} --help)" if where is not None else ""
    message = error.format_message().replace("\n", " ")
    if isinstance(error, click.NoSuchOption) and where and (others := _commands_with(error.option_name, where)):
        message = f"{where.command_path} has no option {error.option_name}; it belongs to fedskew {', '.join(others)}"
    if where and where.info_name in ("run", "compare") and re.search(r": '[^']+,[^']+' is not a valid", message):
        message = f"{message.rstrip('.')}; `fedskew sweep` takes several values."
    if message.startswith("Got unexpected extra argument"):
        message = f"{message.rstrip('.')}. {SEVERAL}"
    return message + hint


def _commands_with(option: str, where: click.Context) -> list[str]:
    """The commands that have an option which another one has not."""
    known = getattr(where.find_root().command, "commands", {})
    return [name for name, command in known.items() if any(option in one.opts for one in command.params)]


def _methods_with(argument: str) -> list[str]:
    """The registered methods that have an argument of this name."""
    from fedskew.algorithms import ALGORITHMS
    from fedskew.core.spec import parameters

    return [name for name, factory in ALGORITHMS.items() if argument in parameters(factory)]


def complain(message: str, code: int) -> int:
    """Print an error and return the exit code. Only rank 0 reports what all ranks see: an invalid request, an
    interruption."""
    if not rank() or code == 1:
        say(f"fedskew: {f'rank {rank()}: ' if rank() else ''}{_shortened(message)}", err=True)
    elif code == 2:
        with suppress(KeyboardInterrupt):
            time.sleep(_FIRST_SPEAKS)
    return code


def _shortened(message: str) -> str:
    """A message without its middle, if it repeats a very long request."""
    return message if len(message) <= 2 * _LONGEST else f"{message[:_LONGEST]} ... {message[-_LONGEST:]}"
