"""Accuracy against a parameter: a line for each combination of the others, dots with intervals over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.core import spec
from fedskew.report.figures import drawing, frame, mark_break, save
from fedskew.report.style import look
from fedskew.report.swept import Swept
from fedskew.runs.summary import setting_text
from fedskew.runs.verdict import Difference, paired

_WORDS = {
    "accuracy_last10": "accuracy on the test set, mean of the last ten rounds (%)",
    "validation_accuracy": "accuracy on held-out examples (%)",
}
_DECADE = 10
"""Positive values with at least this ratio are drawn on a logarithmic axis."""
_APART = 0.008
"""Between the dots of two lines, as a share of the axis, so that no interval hides another."""


def draw_sweep(path: Path, swept: Swept, vector: str = "svg") -> list[Path]:
    """PNG, and also SVG or PDF."""
    across = across_of(swept)
    places = places_of(swept, across)
    with drawing(6.4, 3.9) as (figure, [[axes]]):
        lines = lines_of(swept, across)
        for number, (name, rows) in enumerate(lines.items()):
            aside = _beside(places, number - (len(lines) - 1) / 2)
            dots = [(aside.get(row["values"][across]), interval_of(row, swept.measure)) for row in rows]
            line = {} if _are_numbers([*places]) else {"linestyle": "none"}  # words have no order
            _draw(axes, dots, {"label": name or None, **look(name, number), **line})
        if _is_log([*places]):
            axes.set_xscale("log")
        axes.set_xticks([*places.values()], labels=[spec.show(value) for value in places])
        axes.minorticks_off()
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0), min(high, 100))  # an interval over few seeds can exceed the range of accuracies
        axes.set_xlabel(across)
        axes.set_ylabel(_WORDS[swept.measure], fontsize=8)
        frame(figure, _title(swept))
        mark_break(axes)
        if any(axes.get_legend_handles_labels()[1]):
            figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
        return save(figure, path, vector)


def across_of(swept: Swept) -> str:
    """What the figure is drawn against: the parameter with the most numbers, else the one with the most values."""
    return max(swept.names, key=lambda name: (_are_numbers(_known(swept, name)), len(swept.values(name))))


def places_of(swept: Swept, across: str) -> dict[Any, float]:
    """The position of each value: a number at its value, words side by side."""
    values = _known(swept, across)
    return {value: value if _are_numbers(values) else i for i, value in enumerate(values)}


def lines_of(swept: Swept, across: str) -> dict[str, list[dict[str, Any]]]:
    """Rows that differ in nothing else, by what they share."""
    others = [name for name in swept.names if name != across]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in swept.rows:
        found.setdefault(setting_text({name: row["values"][name] for name in others}), []).append(row)
    return found


def _draw(axes: Any, dots: Sequence[tuple[float | None, Difference | None]], style: dict[str, Any]) -> None:
    """A line through the dots; a method without the parameter is a horizontal line."""
    for place, interval in dots:
        if place is None and interval is not None:
            axes.axhline(interval.mean, color=style["color"], label=style["label"], linestyle="--", linewidth=1.2)
    known = sorted((place, i.mean, i.half or 0.0) for place, i in dots if place is not None and i is not None)
    if known:
        xs, ys, halves = zip(*known, strict=True)
        axes.errorbar(xs, ys, yerr=halves, linewidth=1.2, elinewidth=0.9, markersize=5, capsize=3, **style)


def _beside(places: Mapping[Any, float], steps: float) -> dict[Any, float]:
    """Every position shifted by this many small steps, in the scale of the figure."""
    least, most = min(places.values()), max(places.values())
    if _is_log([*places]):
        ratio = (most / least) ** (_APART * steps)
        return {value: place * ratio for value, place in places.items()}
    return {value: place + _APART * steps * (most - least) for value, place in places.items()}


def interval_of(row: Mapping[str, Any], measure: str) -> Difference | None:
    """The mean over seeds in percent and half its 95 % Student interval: the difference to zero."""
    each = dict(zip(row["seeds"], row[measure]["each"], strict=True))
    points = {seed: None if value is None else 100 * value for seed, value in each.items()}
    return paired(points, dict.fromkeys(points, 0.0))


def _known(swept: Swept, name: str) -> list[Any]:
    return [value for value in swept.values(name) if value is not None]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _is_log(values: Sequence[Any]) -> bool:
    return _are_numbers(values) and min(values) > 0 and max(values) >= _DECADE * min(values)


def _title(swept: Swept) -> str:
    seeds = len(swept.rows[0]["seeds"])
    return f"{swept.title}, " + ("one seed" if seeds == 1 else f"mean and 95 % interval over {seeds} seeds")
