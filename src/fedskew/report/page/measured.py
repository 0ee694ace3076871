"""What was measured on a run's model, in the form of panels; absent or malformed values give no panel.

`local_effect` is written by `fedskew paper run figure2`: {method: effect}. `diagnosis` is written by
`fedskew diagnose`: {"methods": {method: {"class_accuracy": effect, "deviation": {"pairs": [...], "summary": {...}}}}}.
An effect has `before`, `mean_after`, `aggregated` (accuracies per class), `groups` and `accuracy`; a pair has `ratio`
(n_j / n_r, None for infinite), `bound` (D_jr), `kind` and `own` (Delta w_r . h^(r)); a summary, which is over all pairs
while `pairs` may be some of them, has `stated` (how many have D_jr > 0) and `above` (the share above it).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.report.page.entries import Entry
from fedskew.report.style import KIND_LOOKS

WHEN = ("before", "after", "aggregated")


@dataclass(frozen=True)
class Effect:
    """Accuracies before a local update, after it, and after aggregation: over kinds of classes, and per class."""

    method: str
    groups: dict[str, dict[str, float | None]]
    classes: dict[str, list[float | None]]


@dataclass(frozen=True)
class Pair:
    """A majority class against a minority or missing one, at one client; `ratio` None is infinite."""

    ratio: float | None
    bound: float
    falls: bool


@dataclass(frozen=True)
class Deviation:
    """Pairs with a positive bound: those that are listed, how many there are in all, and how many are above it."""

    pairs: list[Pair]
    stated: int
    above: int


def effects(entry: Entry) -> dict[str, Effect]:
    """By method; a diagnosis takes precedence over the paper's figure."""
    return {name: effect for name, effect in _effects(entry.measured) if effect is not None}


def deviations(entry: Entry) -> dict[str, Deviation]:
    """For each method that has pairs with a positive bound."""
    methods = _dict(_dict(entry.measured.get("diagnosis")).get("methods"))
    found = {str(name): _deviation(_dict(_dict(content).get("deviation"))) for name, content in methods.items()}
    return {name: each for name, each in found.items() if each.pairs}


def _deviation(content: dict[str, Any]) -> Deviation:
    listed = content.get("pairs")
    known = [pair for row in listed if (pair := _pair(row)) is not None] if isinstance(listed, list) else []
    summary = _dict(content.get("summary"))
    try:
        stated = int(summary["stated"])
        return Deviation(known, stated, round(summary["above"] * stated))
    except (KeyError, TypeError, ValueError):
        above = sum(pair.ratio is None or pair.ratio > pair.bound for pair in known)
        return Deviation(known, len(known), above)


def some(items: Sequence[Pair], most: int) -> list[Pair]:
    """At most this many, evenly spread."""
    count = min(most, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _effects(measured: dict[str, Any]) -> Iterator[tuple[str, Effect | None]]:
    for name, effect in _dict(measured.get("local_effect")).items():
        yield str(name), _effect(str(name), effect)
    for name, content in _dict(_dict(measured.get("diagnosis")).get("methods")).items():
        yield str(name), _effect(str(name), _dict(content).get("class_accuracy"))


def _effect(method: str, content: Any) -> Effect | None:
    try:
        groups = {kind: {when: _share(content["groups"][kind].get(when)) for when in WHEN} for kind in KIND_LOOKS}
        groups["all"] = {when: _share(content["accuracy"].get(when)) for when in WHEN}
        lists = {"before": content["before"], "after": content["mean_after"], "aggregated": content["aggregated"]}
        classes = {when: [_share(value) for value in values] for when, values in lists.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return Effect(method, groups, classes)


def _pair(row: Any) -> Pair | None:
    try:
        ratio = None if row["ratio"] is None else float(row["ratio"])
        found = Pair(ratio, float(row["bound"]), float(row["own"]) < 0)
    except (KeyError, TypeError, ValueError):
        return None
    sound = all(math.isfinite(value) and value > 0 for value in (found.bound, 1.0 if ratio is None else ratio))
    return found if sound else None


def _share(value: Any) -> float | None:
    return None if value is None else float(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
