"""What `fedskew tune` tried, as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.core import spec
from fedskew.report.comparison import write_texts
from fedskew.report.text_tables import as_csv, as_markdown
from fedskew.runs.summary import percent, setting_text

Tries = Sequence[Mapping[str, Any]]
"""All tries: `method`, `values`, `rounds`, `held_out` (None if it diverged) and whether it was `chosen`."""

HEADS = ("method", "setting", "rounds", "held out %", "")


def try_cells(tries: Tries) -> list[list[str]]:
    """Cells under HEADS."""
    return [
        [
            each["method"],
            setting_text(each["values"]) or "unchanged",
            str(each["rounds"]),
            "diverged" if each["held_out"] is None else percent(each["held_out"]),
            "chosen" if each["chosen"] else "",
        ]
        for each in tries
    ]


def tries_csv(tries: Tries) -> str:
    """A line per try with a column per knob, with fractions."""
    knobs = list(dict.fromkeys(name for each in tries for name in each["values"]))
    lines = []
    for each in tries:
        shown = [None if (value := each["values"].get(name)) is None else spec.show(value) for name in knobs]
        lines.append([each["method"], *shown, each["rounds"], each["held_out"], each["chosen"]])
    return as_csv(["method", *knobs, "rounds", "held_out", "chosen"], lines)


def tries_markdown(tries: Tries) -> str:
    return "\n".join(as_markdown(HEADS, try_cells(tries))) + "\n"


def write_tries(out: Path, tries: Tries) -> list[Path]:
    """tries.md and tries.csv."""
    return write_texts(out / "tries", {"md": tries_markdown(tries), "csv": tries_csv(tries)})
