"""Damaged lines of results files."""

from pathlib import Path
from random import Random

from fedskew.cli import main
from tests.helpers.attempts import Tally


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """One field of a line after another replaced by something else, then lines cut and with flipped bits."""
    tally.call("no store", lambda: main(["runs", "list", "--runs", str(folder)]))
