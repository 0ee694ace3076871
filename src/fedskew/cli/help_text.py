"""Help without escapes for markup that is off."""

from collections.abc import Sequence
from typing import Any

import click


class _Formatter(click.HelpFormatter):
    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **more: Any) -> None:
        """typer writes `\\[default: 1]` for rich, even where rich does not print it."""
        super().write_dl([(name, text.replace("\\[", "[")) for name, text in rows], *args, **more)


class _Context(click.Context):
    formatter_class = _Formatter


def with_plain_help(command: click.Command) -> click.Command:
    """The command and its subcommands, with unescaped help."""
    command.context_class = _Context
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_plain_help(below)
    return command
