"""Where in the user's own code an error comes from."""

import traceback
from pathlib import Path

from fedskew.core.identity import installed


def told(error: Exception) -> str:
    """What went wrong, and in which line of the user's own code: `mine.py, line 4, in loss: NameError: ...`."""
    line, text = own_line(error), str(error).strip().rstrip(".")
    if line is None and isinstance(error, RuntimeError | ValueError) and text:
        return text
    return ": ".join(part for part in (line, type(error).__name__, text) if part)


def own_line(error: Exception) -> str | None:
    """The last line on the way to an error that is not from an installed package: `mine.py, line 4, in loss`."""
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {number}, in {frame.f_code.co_name}"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not installed(frame.f_globals.get("__name__"))
    ]
    return lines[-1] if lines else None
