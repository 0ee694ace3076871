"""The command line: a file per command."""

from fedskew.cli.entry import app, main

__all__ = ["app", "main"]
