"""The tables of a federation: results, time and engine."""

from typing import Any

from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.html import Html, cell, head, table, tag
from fedskew.runs.measures import target_words
from fedskew.runs.summary import held_out, mean_head, percent
from fedskew.runs.verdict import BASELINE, BEST, MEASURE, NOT_DECIDED, VERDICTS, Difference, leaders


def results(federation: Federation) -> Html:
    """Mean and std over finished seeds, the best by the verdict rule marked, and verdicts against FedAvg."""
    methods, mean = federation.methods, mean_head([federation.rounds])
    columns = {
        MEASURE: f"{mean} %",
        "accuracy": "accuracy %",
        "balanced_accuracy": "balanced accuracy %",
        "loss": "loss",
        **dict.fromkeys(held_out(method.row for method in methods), "held out %"),
    }
    marks = {measure: leaders([method.row for method in methods], measure) for measure in columns}
    differences = {method.name: federation.difference(method) for method in methods}
    reach = max((max(-d.least, d.most) for d in differences.values() if d is not None), default=0.0)
    judged, more = any(differences.values()), [more_columns(federation, method) for method in methods]
    rows = []
    for i, method in enumerate(methods):
        apart = [_difference(federation, method, differences[method.name], reach)] if judged else []
        shown = [_value(method, measure, marks[measure].get(i)) for measure in columns]
        done = cell(f"{len(method.finished)} of {len(method.entries)}")
        rows.append([head(method.label), *apart, *shown, *map(cell, more[i].values()), done])
    heads = ["method", *([f"{mean} − {federation.base_label}, points"] if judged else [])]
    heads += [*columns.values(), *more[0], "seeds done"]
    return table("Results, mean ± standard deviation over seeds", heads, rows, "results")


def more_columns(federation: Federation, method: Method) -> dict[str, str]:
    """The optional columns: without FedAvg there is no target, without IID runs no gap."""
    columns: dict[str, str] = {}
    if federation.baseline is not None or federation.target is not None:
        columns[f"rounds to {target_words(federation.target)}"] = str(federation.reach(method) or "-")
    if federation.iid is not None:
        end, gain = mean_head([federation.rounds]), federation.difference_on_iid(method)
        columns["IID gap closed"] = str(federation.gap_closed(method) or "-")
        columns[f"{end} − {federation.base_label} on IID data, points"] = "-" if gain is None else verdict_text(gain)
    return columns


def states(method: Method) -> str:
    """`1 diverged in round 12, 1 unfinished at round 3 of 60`; nothing if all runs are done."""
    parts = []
    for state, word in (("diverged", "in round"), ("unfinished", "at round")):
        found = [entry for entry in method.entries if entry.state == state]
        if found:
            rounds = ", ".join(str(entry.summary["rounds"]) for entry in found[:5])
            of = f" of {found[0].run['rounds']}" if state == "unfinished" else ""
            parts.append(f"{len(found)} {state} {word} {rounds}{of}")
    return ", ".join(parts)


def words(federation: Federation) -> list[str]:
    """The table in sentences."""
    if federation.baseline is None:
        return [_no_baseline(federation)]
    found = [federation.difference(method) for method in federation.methods]
    said = [difference.verdict for difference in found if difference is not None]
    if not said:
        return []
    counted = ", ".join(f"{said.count(word)} {word}" for word in VERDICTS if word in said)
    single = " One or two seeds decide nothing." if NOT_DECIDED in said else ""
    return [f"Methods against {federation.base_label}: {counted}.{single}"]


def _no_baseline(federation: Federation) -> str:
    if federation.longer is None:
        tuned = " Settings that fedskew tune chose, one for each method, are compared in its own table."
        return f"There is no {BASELINE} run with these settings to compare with.{tuned if federation.elsewhere else ''}"
    mine, more = federation.rounds, federation.longer.rounds
    return (
        f"There is no {BASELINE} run of {mine} rounds to compare with, but one of {more}. After `fedskew compare` with "
        f"{BASELINE}, these methods and --rounds {mine}, a report judges them."
    )


def timing(federation: Federation) -> Html:
    rows = [[head(method.label), *(cell(text) for text in _times(method))] for method in federation.methods]
    heads = ["method", "engine", "device", "rounds computed", "seconds in all", "ms per round"]
    return table("Time and engine", heads, rows)


def verdict_text(difference: Difference) -> str:
    """With a minus sign as wide as a plus sign."""
    return str(difference).replace("-", "−")


def _times(method: Method) -> list[str]:
    rounds = sum(entry.summary["rounds"] for entry in method.entries)
    seconds = sum(entry.summary["seconds"] for entry in method.entries)
    kinds = [
        ", ".join(sorted({str(entry.summary[name] or "-") for entry in method.entries}))
        for name in ("engine", "device")
    ]
    return [*kinds, str(rounds), f"{seconds:.1f}", f"{1000 * seconds / rounds:.1f}" if rounds else "-"]


def _value(method: Method, measure: str, mark: str | None) -> Html:
    spread: dict[str, Any] = method.row[measure]
    text = _plain(spread) if measure == "loss" else percent(spread["mean"], spread["std"])
    if mark is None:
        return cell(text)
    said = tag("span", f" {mark}", class_="mark")
    return cell(tag("strong", text), said, class_="best") if mark == BEST else cell(text, said, class_="first")


def _plain(spread: dict[str, Any]) -> str:
    if spread["mean"] is None:
        return "-"
    return f"{spread['mean']:.3f}" + ("" if spread["std"] is None else f" ± {spread['std']:.3f}")


def _difference(federation: Federation, method: Method, difference: Difference | None, reach: float) -> Html:
    if method is federation.baseline:
        return cell("baseline", class_="verdict quiet")
    if difference is None:
        return cell("-", class_="verdict")
    if difference.half is None:
        return cell(verdict_text(difference), class_="verdict quiet")
    said, _, seeds = verdict_text(difference).partition(" over ")
    word, interval = said.split(" [")
    decided = " apart" if difference.verdict in ("above", "below") else ""
    below = tag("span", _whisker(difference, reach), f" over {seeds}", class_="mark")
    return cell(f"{word} ", tag("span", f"[{interval}", class_="whole"), below, class_=f"verdict{decided}")


def _whisker(interval: Difference, reach: float) -> Html:
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
