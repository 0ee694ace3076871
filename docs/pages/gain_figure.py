"""FedLC's gain over FedAvg, cell by cell: the paper's and ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.report.figures import canvas, finish

_LOOKS = {"paper": ("#c6c6c6", "black"), "stated": ("#7fb3d5", "black"), "usual": ("#b2182b", "white")}
"""A bar's colour and that of its number; they remain distinct in grey."""
_WIDTH, _TALL = 0.29, 2.5
_ABSENT = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 6.5, "color": "#777777"}


def gain_figure(
    path: Path, cells: Sequence[Mapping[str, Any]], labels: Mapping[str, str], title: str, note: str
) -> list[Path]:
    """A group of bars per cell, the mean gain in points; dots are seeds, if there are several.

    A cell is {"name", "gains": {series: [points of each seed]}}; `labels` names the series in the order of bars.
    """
    with canvas(7.6, 3.6) as figure:
        axes = figure.subplots()
        for position, (series, label) in enumerate(labels.items()):
            colour, ink = _LOOKS[series]
            known = [(i, cell["gains"][series]) for i, cell in enumerate(cells) if cell["gains"].get(series)]
            shift = (position - (len(labels) - 1) / 2) * _WIDTH
            for i in set(range(len(cells))) - {i for i, _ in known}:
                axes.annotate("not run", (i + shift, 0), (0, 3), textcoords="offset points", **_ABSENT)
            at = [i + shift for i, _ in known]
            means = [sum(each) / len(each) for _, each in known]
            axes.bar(at, means, _WIDTH * 0.94, color=colour, label=label)
            for x, mean, (_, each) in zip(at, means, known, strict=True):
                place = 0 if mean > _TALL else max(0, *each)  # inside a bar that has room, else above the dots
                colour = ink if mean > _TALL else "black"
                axes.annotate(
                    f"{mean:.1f}",
                    (x, place),
                    (0, 3 if len(each) == 1 or mean > _TALL else 5),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7.5,
                    color=colour,
                )
                if len(each) > 1:
                    axes.plot([x] * len(each), each, "o", color="black", markeredgecolor="white", markersize=4)
        axes.axhline(0, color="#333333", linewidth=1)
        axes.grid(visible=False, axis="x")
        axes.set_xticks(range(len(cells)), [cell["name"] for cell in cells])
        axes.set_ylabel("points above FedAvg")
        return finish(figure, path, title, note, [axes], len(labels))
