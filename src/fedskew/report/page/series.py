"""What the page's scripts draw: means over seeds, as short numbers."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fedskew.report.page.entries import MEASURES, Entry
from fedskew.report.page.federations import Federation, Method
from fedskew.report.style import looks

_DASHES = {"-": "", "--": "6 3", "-.": "8 3 2 3", ":": "2 3"}


def drawn(federation: Federation) -> dict[str, Any]:
    """Curves, accuracies per class, and the first seed's partition."""
    styles = looks(method.name for method in federation.methods)
    return {
        "rounds": federation.fields["rounds"],
        "methods": [_method(method, styles[method.name]) for method in federation.methods],
        "partition": partition_of(federation),
    }


def partition_of(federation: Federation) -> dict[str, Any] | None:
    """The card of the lowest seed that has one."""
    known = [entry for entry in federation.entries if entry.card is not None and entry.card["counts"]]
    if not known:
        return None
    first = min(known, key=lambda entry: entry.run["seed"])
    return {"seed": first.run["seed"], **(first.card or {})}


def _method(method: Method, style: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": method.name,
        "color": style["color"],
        "dash": _DASHES[style["linestyle"]],
        "seeds": len(method.drawn),
        "state": method.drawn[0].state,
        "curve": curve(method.drawn),
        "heat": heat(method.drawn),
    }


def curve(entries: Sequence[Entry]) -> dict[str, Any]:
    """Each measure's mean and std over runs, at the rounds they have in common; accuracies in percent."""
    tables = [{point["round"]: point for point in entry.points} for entry in entries]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    found: dict[str, Any] = {"round": rounds}
    for measure in MEASURES:
        columns = [[table[r][measure] for table in tables] for r in rounds]
        short = _loss if measure == "loss" else _percent
        found[measure] = [short(_known(column, statistics.fmean)) for column in columns]
        if len(entries) > 1:
            found[f"{measure}_std"] = [short(_known(column, statistics.stdev)) for column in columns]
    return found


def heat(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Mean accuracy in whole percent, [classes][rounds]."""
    tables = [{point["round"]: point["values"] for point in entry.classes} for entry in entries]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    if not rounds:
        return None
    classes = min(len(table[r]) for table in tables for r in rounds)
    mean = [[_known([table[r][c] for table in tables], statistics.fmean) for r in rounds] for c in range(classes)]
    return {"round": rounds, "values": [[None if v is None else round(100 * v) for v in row] for row in mean]}


def _known(values: Sequence[float | None], reduce: Callable[[Sequence[float]], float]) -> float | None:
    """The mean of all values, or None if one is unknown: a mean over fewer seeds would jump."""
    known = [value for value in values if value is not None]
    return reduce(known) if known and len(known) == len(values) else None


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 2)


def _loss(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
