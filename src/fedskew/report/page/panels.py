"""Panels of what was measured on models: before and after a local update, and the deviation bound. Drawn as SVG."""

import math
from collections.abc import Sequence

from fedskew.report.page.entries import Entry
from fedskew.report.page.federations import Federation
from fedskew.report.page.html import Html, cell, head, join, prose, table, tag
from fedskew.report.page.measured import WHEN, Deviation, Effect, Pair, deviations, effects, some

MOST_RUNS, MOST_PAIRS = 6, 300
_WIDE, _HIGH, _PAD = 300, 190, 34


def measured_panels(federation: Federation, store: str = "") -> Html:
    """Panels of the first runs with measurements; if there are none, how to make them in the store of this option."""
    known = [entry for entry in federation.entries if effects(entry) or deviations(entry)]
    noted = [f"Run {entry.hash[:8]}: {note}." for entry in federation.entries for note in entry.notes]
    lines = [tag("p", prose(note, store), class_="notice") for note in noted]
    many = f"First {MOST_RUNS} of {len(known)} measured runs." if len(known) > MOST_RUNS else ""
    lines += [tag("p", prose(words, store)) for words in (many, _how_to(federation, known)) if words]
    blocks = [_of_run(entry) for entry in known[:MOST_RUNS]]
    if not (lines or blocks):
        return Html("")
    return tag("section", tag("h3", "Local updates"), lines, blocks, class_="measured")


def _how_to(federation: Federation, known: Sequence[Entry]) -> str:
    """The command for measurements that no run of the section has."""
    finished = [entry for entry in (known or federation.entries) if entry.state == "done"]
    if not finished or any(deviations(entry) for entry in known):
        return ""
    lacking = "The deviation bound was not measured" if known else "Not measured"
    return f"{lacking}; `fedskew diagnose {finished[0].hash[:8]}` measures it for a run."


def _of_run(entry: Entry) -> Html:
    done = entry.summary["rounds"]
    title = f"Model of {entry.method} after round {done}, seed {entry.run['seed']}, run {entry.hash[:8]}"
    shown, plots = effects(entry), deviations(entry)
    ends = _decades([pair for found in plots.values() for pair in some(found.pairs, MOST_PAIRS)])
    panels = [
        tag(
            "div",
            _effect(shown[name]) if name in shown else None,
            deviation_plot(name, plots[name], ends) if name in plots else None,
            class_="panel",
        )
        for name in dict.fromkeys([*shown, *plots])
    ]
    return tag("div", tag("h4", title), tag("div", panels, class_="panels"))


def _effect(effect: Effect) -> Html:
    caption = f"Accuracy % before and after a local update under {effect.method}"
    rows = [[head(kind), *(_bar(group[when]) for when in WHEN)] for kind, group in effect.groups.items()]
    grid = table(caption, ["classes", *WHEN], rows, "bars")
    return join([grid, class_plot(effect)])


def _bar(share: float | None) -> Html:
    if share is None:
        return cell("-")
    return cell(f"{100 * share:.1f}", style=f"--share:{100 * share:.1f}%")


def class_plot(effect: Effect) -> Html:
    """Accuracy per class: a line from before to after the local update, a ring for the aggregated model."""
    count = max(1, len(effect.classes["before"]))
    marks: list[Html] = []
    for label, (before, after, aggregated) in enumerate(zip(*(effect.classes[when] for when in WHEN), strict=False)):
        x = f"{_PAD + (label + 0.5) * (_WIDE - _PAD - 8) / count:.1f}"
        if before is not None and after is not None:
            marks.append(tag("line", x1=x, x2=x, y1=_level(before), y2=_level(after), class_="stem"))
            marks.append(tag("circle", cx=x, cy=_level(before), r=3, class_="before"))
            marks.append(tag("circle", cx=x, cy=_level(after), r=3, class_="after"))
        if aggregated is not None:
            marks.append(tag("circle", cx=x, cy=_level(aggregated), r=4.5, class_="ring"))
    axes = [_text(2, _level(share), f"{100 * share:.0f} %") for share in (0.0, 0.5, 1.0)]
    rules = [tag("line", x1=_PAD, x2=_WIDE, y1=_level(s), y2=_level(s), class_="rule") for s in (0.0, 0.5, 1.0)]
    middle = _text((_PAD + _WIDE) / 2, _HIGH - 4, f"class 0 to {count - 1}", "middle")
    key = "Per class: grey dot before, red dot after the local update, ring after aggregation."
    return _figure([*rules, *axes, *marks, middle], key)


def _decades(found: Sequence[Pair]) -> tuple[int, int]:
    """Powers of ten around all that panels side by side show."""
    values = [value for pair in found for value in (pair.ratio, pair.bound) if value is not None] or [1.0]
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)


def deviation_plot(method: str, whole: Deviation, ends: tuple[int, int]) -> Html:
    """D_jr across, n_j / n_r up, both logarithmic; infinite ratios at the top edge; the line is their equality."""
    found = some(whole.pairs, MOST_PAIRS)
    low, span = ends[0], max(1, ends[1] - ends[0])

    def at(value: float, length: float) -> float:
        return length * (math.log10(value) - low) / span

    across, up = _WIDE - _PAD - 8, _HIGH - 52
    dots = [
        tag("circle", cx=f"{_PAD + at(pair.bound, across):.1f}", r=2.5, class_="falls" if pair.falls else "rises",
            cy="8" if pair.ratio is None else f"{_HIGH - 30 - at(pair.ratio, up):.1f}")
        for pair in found
    ]  # fmt: skip
    line = tag("line", x1=_PAD, y1=_HIGH - 30, x2=_PAD + across, y2=_HIGH - 30 - up, class_="equal")
    names = [
        _text(_PAD, _HIGH - 16, _power(low)), _text(_WIDE, _HIGH - 16, _power(low + span), "end"),
        _text(_WIDE / 2, _HIGH - 4, "deviation bound D_jr", "middle"), _text(2, 12, "∞"),
        _text(2, 26, _power(low + span)), _text(2, _HIGH - 30, _power(low)),
    ]  # fmt: skip
    drawn = "" if len(found) == whole.stated else f" {len(found)} of them are drawn."
    key = (
        f"{method}: n_j / n_r (up) against D_jr for {whole.stated} pairs of classes, {whole.above} of them above the "
        f"line of equality.{drawn} Red: Δw_r · h_r is negative, by theorem 1 of the FedLC paper much more likely far "
        "above the line."
    )
    return _figure([line, *dots, *names], key)


def _figure(content: Sequence[Html], key: str) -> Html:
    drawing = tag("svg", content, viewBox=f"0 0 {_WIDE} {_HIGH}", role="img", aria_label=key, class_="small")
    return tag("figure", drawing, tag("figcaption", key))


def _level(share: float) -> str:
    return f"{12 + (1 - share) * (_HIGH - 42):.1f}"


def _text(x: float, y: float | str, text: str, anchor: str = "start") -> Html:
    return tag("text", text, x=f"{x:.0f}", y=str(y), text_anchor=anchor)


def _power(exponent: int) -> str:
    return f"1e{exponent}"
