"""How help is shown: commands in the order of docs/cli.md, without escapes for markup that is off."""

from collections.abc import Sequence
from typing import Any

import click
import typer.core

ORDER = (
    "run",
    "compare",
    "sweep",
    "tune",
    "inspect",
    "diagnose",
    "methods",
    "advise",
    "report",
    "paper",
    "runs",
    "export",
    "data",
    "flower",
)


class _Formatter(click.HelpFormatter):
    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **more: Any) -> None:
        """typer writes `\\[default: 1]` for rich, even where rich does not print it."""
        super().write_dl([(name, text.replace("\\[", "[")) for name, text in rows], *args, **more)


class _Context(click.Context):
    formatter_class = _Formatter


class Commands(typer.core.TyperGroup):
    """All commands; typer would list those that are groups last."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


def with_plain_help(command: click.Command) -> click.Command:
    """The command and its subcommands, with unescaped help."""
    command.context_class = _Context
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_plain_help(below)
    return command
