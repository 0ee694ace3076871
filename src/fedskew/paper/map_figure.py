"""What a method gains over another when the assumptions behind a table are varied."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.report.figures import canvas, finish, legend
from fedskew.report.style import DARK, looks

_LIMIT = 20.0
"""Points beyond which a dot is drawn at the edge with its number."""


def map_figure(
    path: Path,
    base: Sequence[Mapping[str, Any]],
    varied: Sequence[Mapping[str, Any]],
    title: str,
    note: str | None = None,
) -> list[Path]:
    """Left: FedLC minus FedAvg in points over tau and the rule for missing classes, a panel per base setting. Right:
    each method minus FedAvg in points, a row per varied assumption.

    A base setting is {"title", "taus": [T], "missing": [M], "difference": [M][T] of points or None}; a row is
    {"name", "differences": {method: points or None}}.
    """
    tall = max(1.3 + sum(0.75 + 0.3 * len(panel["missing"]) for panel in base), 1.5 + 0.2 * len(varied))
    with canvas(9.4, tall) as figure:
        left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15])
        _heats(left, base)
        _dots(right, varied)
        return finish(figure, path, title, note)


def _heats(figure: Any, base: Sequence[Mapping[str, Any]]) -> None:
    """Panels below each other, with one range of colours around zero."""
    known = [abs(d) for panel in base for row in panel["difference"] for d in row if d is not None]
    span = max(known, default=0.0) or 1.0
    panels = figure.subplots(len(base), 1, squeeze=False)[:, 0].tolist()
    for axes, panel in zip(panels, base, strict=True):
        image = _heat(axes, panel, span)
    bar = figure.colorbar(image, ax=panels, location="bottom", shrink=0.9, aspect=40)
    bar.set_label("fedlc − fedavg (points of test accuracy)", fontsize=8)


def _heat(axes: Any, panel: Mapping[str, Any], span: float) -> Any:
    """One base setting. Every cell also shows its number, since colours of equal darkness look the same in grey."""
    cells = [[math.nan if d is None else d for d in row] for row in panel["difference"]]
    image = axes.imshow(cells, cmap="RdBu", aspect="auto", vmin=-span, vmax=span)
    for row, values in enumerate(panel["difference"]):
        for column, value in enumerate(values):
            dark = value is not None and abs(value) > 0.6 * span
            axes.text(
                column, row, signed(value), ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )
    axes.grid(visible=False)
    axes.set_xticks(range(len(panel["taus"])), [f"{tau:g}" for tau in panel["taus"]])
    axes.set_yticks(range(len(panel["missing"])), panel["missing"])
    axes.set(xlabel="tau", ylabel="missing classes")
    axes.set_title(panel["title"], fontsize=8, loc="left")
    return image


def _dots(figure: Any, varied: Sequence[Mapping[str, Any]]) -> None:
    """A row per varied assumption, from the top."""
    axes = figure.subplots()
    for name, style in looks(dict.fromkeys(name for row in varied for name in row["differences"])).items():
        found = [(row["differences"].get(name), place) for place, row in enumerate(varied)]
        points = [(value, place) for value, place in found if value is not None]
        axes.plot(
            [max(-_LIMIT, min(_LIMIT, value)) for value, _ in points],
            [place for _, place in points],
            **{**style, "linestyle": "none"},
            markersize=5,
            label=f"{name} − fedavg",
        )
        for value, place in points:
            if abs(value) > _LIMIT:
                edge = _LIMIT if value > 0 else -_LIMIT
                axes.annotate(signed(value), (edge, place), (8, 0), textcoords="offset points", va="center", fontsize=7)
    axes.axvline(0, color=DARK, linewidth=1)
    axes.set_yticks(range(len(varied)), [row["name"] for row in varied], fontsize=7)
    axes.set_ylim(len(varied) - 0.4, -0.6)
    for place in range(1, len(varied)):
        axes.axhline(place - 0.5, color="#bdbdbd", linewidth=0.7)
    axes.set_xlabel("points of test accuracy above fedavg")
    legend(figure, [axes], 3)


def signed(value: float | None) -> str:
    """`+1.2`, `−0.4`; a dot where nothing was measured."""
    return "·" if value is None else f"{value:+.1f}".replace("-", "−")
