"""Arguments of parts, checked: an error names the argument, its value and what is allowed."""

import math
from collections.abc import Iterable
from typing import Any


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    if value not in (known := list(allowed)):
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(known)}")


def check_number(
    name: str, value: float, low: float = 0.0, high: float = math.inf, *, above: bool = False, below: bool = False
) -> None:
    """A finite number from `low` to `high`; `above` excludes `low`, `below` excludes `high`."""
    fits = (value > low if above else value >= low) and (value < high if below else value <= high)
    if not (fits and math.isfinite(value)):
        least = f"above {low:g}" if above else f"{low:g} or more"
        most = "" if high == math.inf else f", {'below' if below else 'at most'} {high:g}"
        closed = high < math.inf and not (above or below)
        raise ValueError(f"{name} is {value}; allowed: {f'{low:g} to {high:g}' if closed else least + most}")
