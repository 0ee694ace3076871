"""The tables of a federation: results, time and engine."""

from collections.abc import Sequence
from typing import Any

from fedskew.report.page.federations import BASELINE, Federation, Method
from fedskew.report.page.html import Html, cell, head, join, table, tag
from fedskew.report.student import Interval
from fedskew.report.summary import percent

_COLUMNS = {
    "accuracy": "accuracy %",
    "balanced_accuracy": "balanced accuracy %",
    "accuracy_last10": "last ten rounds %",
    "loss": "loss",
}


def results(federation: Federation) -> Html:
    """Mean and std over finished seeds, the best of each column marked, and the paired difference to FedAvg."""
    methods = federation.methods
    best = {measure: best_of(methods, measure) for measure in _COLUMNS}
    intervals = {method.name: federation.difference(method) for method in methods}
    reach = max((_reach(interval) for interval in intervals.values()), default=0.0)
    rows = []
    for method in methods:
        shown = [_value(method, measure, marked=best[measure] == method.name) for measure in _COLUMNS]
        apart = _difference(federation, method, intervals[method.name], reach)
        rows.append([head(method.name), *shown, apart, cell(f"{len(method.finished)} of {len(method.entries)}")])
    heads = ["method", *_COLUMNS.values(), f"accuracy − {BASELINE}, points", "seeds done"]
    return table("Results after the last round, mean ± standard deviation over seeds", heads, rows, "results")


def best_of(methods: Sequence[Method], measure: str) -> str | None:
    """The name of the method with the highest mean, for losses the lowest; nobody is best alone."""
    known = [(method.row[measure]["mean"], method.name) for method in methods]
    ranked = sorted((each for each in known if each[0] is not None), reverse=measure != "loss")
    return ranked[0][1] if len(ranked) > 1 else None


def states(method: Method) -> str:
    """`1 diverged in round 12, 1 unfinished at round 3 of 60`; nothing where all runs are done."""
    parts = []
    for state, word in (("diverged", "in round"), ("unfinished", "at round")):
        found = [entry for entry in method.entries if entry.state == state]
        if found:
            rounds = ", ".join(str(entry.summary["rounds"]) for entry in found[:5])
            of = f" of {found[0].run['rounds']}" if state == "unfinished" else ""
            parts.append(f"{len(found)} {state} {word} {rounds}{of}")
    return ", ".join(parts)


def words(federation: Federation) -> list[str]:
    """What the table says, in sentences."""
    name = best_of(federation.methods, "accuracy")
    lines = []
    if name is not None:
        row = next(method.row for method in federation.methods if method.name == name)
        lines.append(f"Highest mean accuracy: {name}, {percent(row['accuracy']['mean'], row['accuracy']['std'])} %.")
    if federation.baseline is None:
        return [*lines, f"There is no {BASELINE} run here to compare with."]
    found = [federation.difference(method) for method in federation.methods]
    known = [interval for interval in found if interval is not None]
    if known and all(interval.n == 1 for interval in known):
        lines.append("One seed only: differences have no interval.")
    elif known:
        above, below = (sum(i.apart and sign * i.mean > 0 for i in known) for sign in (1, -1))
        lines.append(
            f"Against {BASELINE}, the 95 % interval lies above zero for {above} and below zero for {below} of "
            f"{len(known)} methods."
        )
    return lines


def timing(federation: Federation) -> Html:
    rows = [[head(method.name), *(cell(text) for text in _times(method))] for method in federation.methods]
    heads = ["method", "engine", "device", "rounds computed", "seconds in all", "ms per round"]
    return table("Time and engine", heads, rows)


def signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def _times(method: Method) -> list[str]:
    rounds = sum(entry.summary["rounds"] for entry in method.entries)
    seconds = sum(entry.summary["seconds"] for entry in method.entries)
    kinds = [
        ", ".join(sorted({str(entry.summary[name] or "-") for entry in method.entries}))
        for name in ("engine", "device")
    ]
    return [*kinds, str(rounds), f"{seconds:.1f}", f"{1000 * seconds / rounds:.1f}" if rounds else "-"]


def _value(method: Method, measure: str, *, marked: bool) -> Html:
    spread: dict[str, Any] = method.row[measure]
    text = _plain(spread) if measure == "loss" else percent(spread["mean"], spread["std"])
    if not marked:
        return cell(text)
    return cell(tag("strong", text), tag("span", " best", class_="mark"), class_="best")


def _plain(spread: dict[str, Any]) -> str:
    if spread["mean"] is None:
        return "-"
    return f"{spread['mean']:.3f}" + ("" if spread["std"] is None else f" ± {spread['std']:.3f}")


def _difference(federation: Federation, method: Method, interval: Interval | None, reach: float) -> Html:
    if method is federation.baseline:
        return cell("baseline", class_="quiet")
    if interval is None:
        return cell("-")
    mean = signed(100 * interval.mean)
    if interval.half is None:
        return cell(mean, tag("span", " one seed, no interval", class_="quiet"))
    low, high = (signed(100 * (interval.mean + sign * interval.half)) for sign in (-1, 1))
    fewer = f", {interval.n} seeds" if interval.n < len(method.finished) else ""
    text = [mean, tag("span", f" [{low}, {high}]{fewer}", class_="quiet")]
    return cell(_whisker(interval, reach), join(text), class_="apart" if interval.apart else None)


def _reach(interval: Interval | None) -> float:
    return 0.0 if interval is None else abs(interval.mean) + (interval.half or 0.0)


def _whisker(interval: Interval, reach: float) -> Html:
    """The interval as a line around its mean; the middle of the drawing is zero."""
    scale = 46 / reach if reach else 0.0
    half = scale * (interval.half or 0.0)
    middle = 50 + scale * interval.mean
    return tag(
        "svg",
        tag("line", x1=50, x2=50, y1=0, y2=16, class_="zero"),
        tag("line", x1=f"{middle - half:.1f}", x2=f"{middle + half:.1f}", y1=8, y2=8, class_="span"),
        tag("circle", cx=f"{middle:.1f}", cy=8, r=3.5),
        viewBox="0 0 100 16", class_="whisker", aria_hidden="true",
    )  # fmt: skip
