"""What the page's scripts draw: means over seeds, as short numbers."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedskew.report.evened import evened
from fedskew.report.page.entries import DRAWN, Entry
from fedskew.report.page.federations import Federation, Method
from fedskew.report.style import looks

_DASHES = {"-": "", "--": "6 3", "-.": "8 3 2 3", ":": "2 3"}


def drawn(federation: Federation) -> dict[str, Any]:
    """Curves, accuracies per class, and the first seed's partition."""
    styles = looks(method.name for method in federation.methods)
    return {
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
        "name": method.label,
        "color": style["color"],
        "dash": _DASHES[style["linestyle"]],
        "state": method.drawn[0].state,
        "curve": curve(method.drawn),
        "line": line(method.drawn),
        "heat": heat(method.drawn),
    }


def curve(entries: Sequence[Entry]) -> dict[str, Any]:
    """Each measure's mean and std over runs, at the rounds they have in common; accuracies in percent."""
    tables = [{point["round"]: point for point in entry.points} for entry in entries]
    rounds = sorted(set.intersection(*(set(table) for table in tables)))
    values = {measure: [{r: table[r][measure] for r in rounds} for table in tables] for measure in DRAWN}
    return {"round": rounds, **_spreads(values, rounds)}


def line(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """What is drawn of curves whose end alone is dense: as in `curve`, the last rounds as their mean; else None."""
    lines = [[_evened(entry.points, measure) for entry in entries] for measure in DRAWN]
    if all(len(table) == len(entry.points) for table, entry in zip(lines[0], entries, strict=True)):
        return None
    measured = [set(table) for tables in lines for table in tables if table]  # nodes do not measure all
    rounds = sorted(set.intersection(*measured))
    return {"round": rounds, **_spreads(dict(zip(DRAWN, lines, strict=True)), rounds)}


def _evened(points: Sequence[dict[str, Any]], measure: str) -> dict[float, float]:
    return dict(evened([(point["round"], point[measure]) for point in points if point[measure] is not None]))


def _spreads(tables: Mapping[str, Sequence[Mapping[float, float | None]]], rounds: Sequence[float]) -> dict[str, Any]:
    """Each measure's mean, and its std where there are several runs."""
    found: dict[str, Any] = {}
    for measure, runs in tables.items():
        columns = [[table.get(r) for table in runs] for r in rounds]
        found[measure] = [_short(measure, _known(column, statistics.fmean)) for column in columns]
        if len(runs) > 1:
            found[f"{measure}_std"] = [_short(measure, _known(column, statistics.stdev)) for column in columns]
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


def _short(measure: str, value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.4g}") if measure == "loss" else round(100 * value, 2)
