"""Accuracy against a parameter: a line for each combination of the others, with intervals over seeds, or with every
seed where they are too few for an interval."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.core import spec
from fedskew.report.figures import drawing, frame, legend, mark_break
from fedskew.report.style import for_paper, look
from fedskew.report.swept import SweepTable
from fedskew.runs.summary import mean_words, setting_text
from fedskew.runs.verdict import FEWEST, Difference, paired

_DECADE = 10
"""Positive values with at least this ratio are drawn on a logarithmic axis."""
_APART = 0.008
"""Between the dots of two lines, as a share of the axis, so that no interval hides another."""


def swept_figure(swept: SweepTable) -> Any:
    """The measure that settings are judged by, against one parameter."""
    with drawing(6.4, 3.9) as (figure, [[axes]]):
        draw_on(axes, swept)
        frame(figure, f"{swept.title}, {over(swept)}")
        if for_paper():
            legend(figure, [axes], 2)
        elif any(axes.get_legend_handles_labels()[1]):
            figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
        return figure


def _words(swept: SweepTable) -> str:
    if swept.measure == "validation_accuracy":
        return "accuracy on held-out examples (%)"
    return f"accuracy on the test set, {mean_words(row['rounds'] for row in swept.rows)} (%)"


def draw_on(axes: Any, swept: SweepTable) -> None:
    """Lines, ticks and labels, without a title or a legend."""
    across = across_of(swept)
    places = places_of(swept, across)
    lines = lines_of(swept, across)
    for number, (name, rows) in enumerate(lines.items()):
        aside = _beside(places, number - (len(lines) - 1) / 2)
        dots = [(aside.get(row["values"][across]), points_of(row, swept.measure)) for row in rows]
        line = {} if _are_numbers([*places]) else {"linestyle": "none"}  # words have no order
        _draw(axes, [(place, points) for place, points in dots if points], name, {**look(name, number), **line})
    if _is_log([*places]):
        axes.set_xscale("log")
    axes.set_xticks([*places.values()], labels=[spec.show(value) for value in places])
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 100))  # an interval over few seeds can exceed the range of accuracies
    axes.set_xlabel(across)
    axes.set_ylabel("accuracy (%)" if for_paper() else _words(swept), fontsize=8)
    mark_break(axes)


def across_of(swept: SweepTable) -> str:
    """What the figure is drawn against: the parameter with the most numbers, else the one with the most values."""
    return max(swept.names, key=lambda name: (_are_numbers(_known(swept, name)), len(swept.values(name))))


def places_of(swept: SweepTable, across: str) -> dict[Any, float]:
    """The position of each value: a number at its value, words side by side."""
    values = _known(swept, across)
    return {value: value if _are_numbers(values) else i for i, value in enumerate(values)}


def lines_of(swept: SweepTable, across: str) -> dict[str, list[dict[str, Any]]]:
    """Rows that differ in nothing else, by what they share."""
    others = [name for name in swept.names if name != across]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in swept.rows:
        found.setdefault(setting_text({name: row["values"][name] for name in others}), []).append(row)
    return found


def _draw(
    axes: Any, dots: Sequence[tuple[float | None, Mapping[int, float]]], name: str, style: Mapping[str, Any]
) -> None:
    """A line through the means. Each mean is a dot with its interval, or every seed is a small one. A method without
    the parameter is a horizontal line."""
    bare, label = {**style, "linestyle": "none"}, name or None
    for place, points in dots:
        if place is None:
            mean = statistics.fmean(points.values())
            axes.axhline(mean, color=style["color"], label=label, linestyle="--", linewidth=1.2)
    known = sorted(((place, points) for place, points in dots if place is not None), key=lambda dot: dot[0])
    if known:
        means = [statistics.fmean(points.values()) for _, points in known]
        axes.plot([place for place, _ in known], means, **{**style, "marker": "none"}, linewidth=1.2)
        axes.plot([], [], **style, linewidth=1.2, markersize=5, label=label)
    for place, points in known:
        interval = interval_of(points)
        if interval.half is None:
            axes.plot([place] * len(points), list(points.values()), **bare, markersize=3.5)
        else:
            axes.errorbar([place], [interval.mean], [interval.half], **bare, elinewidth=0.9, markersize=5, capsize=3)


def _beside(places: Mapping[Any, float], steps: float) -> dict[Any, float]:
    """Every position shifted by this many small steps, in the scale of the figure."""
    least, most = min(places.values()), max(places.values())
    if _is_log([*places]):
        ratio = (most / least) ** (_APART * steps)
        return {value: place * ratio for value, place in places.items()}
    return {value: place + _APART * steps * (most - least) for value, place in places.items()}


def points_of(row: Mapping[str, Any], measure: str) -> dict[int, float]:
    """The measure of every seed that has it, in percent."""
    each = zip(row["seeds"], row[measure]["each"], strict=True)
    return {seed: 100 * value for seed, value in each if value is not None}


def interval_of(points: Mapping[int, float]) -> Difference:
    """The mean over seeds and half its 95 % Student interval: the difference to zero."""
    found = paired(points, dict.fromkeys(points, 0.0))
    assert found is not None  # a row without any point is not drawn
    return found


def _known(swept: SweepTable, name: str) -> list[Any]:
    return [value for value in swept.values(name) if value is not None]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _is_log(values: Sequence[Any]) -> bool:
    return _are_numbers(values) and min(values) > 0 and max(values) >= _DECADE * min(values)


def over(swept: SweepTable) -> str:
    """What is drawn of the seeds, in words."""
    seeds = len(swept.rows[0]["seeds"])
    if seeds == 1:
        return "one seed"
    return f"mean and 95 % interval over {seeds} seeds" if seeds >= FEWEST else "a dot for each of two seeds"
