"""Checks of arguments and of what the user's code gives: an error names the value and what is allowed."""

import inspect
import math
from collections.abc import Callable, Iterable
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


def required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a function must be given by position."""
    found = inspect.signature(function).parameters.values()
    return [p for p in found if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def made_of(thing: object) -> str:
    """What kind of thing was given or returned, for an error message; most often a function forgot to return one."""
    kind = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
