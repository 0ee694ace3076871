"""The paper's figures 1 to 7, drawn from plain numbers. Accuracies are fractions, as in records."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from fedskew.paper.map_figure import signed
from fedskew.report.class_figures import as_percent, class_ticks, mark_classes, standing
from fedskew.report.figures import (
    Series,
    canvas,
    count_bar,
    draw_curves,
    draw_rectangles,
    drawing,
    finish,
    legend,
    mark_break,
)
from fedskew.report.style import DARK, PALE, looks

_CLIENTS = 5


def figure1(path: Path, rows: Sequence[Mapping[str, Any]], title: str, note: str | None = None) -> list[Path]:
    """Accuracy of FedAvg by label skew, against IID.

    A row is {"group", "label", "accuracy": {"mean", "std"}, "printed_drop": points below IID or None}; the row of group
    "iid" is the reference, from which a printed drop is measured downwards.
    """
    reference = next((row["accuracy"]["mean"] for row in rows if row["group"] == "iid"), None)
    places = _grouped([row["group"] for row in rows])
    with drawing(1.6 + 0.62 * len(rows), 3.4) as (figure, [[axes]]):
        for place, row in zip(places, rows, strict=True):
            measured = row["accuracy"]
            height = as_percent(measured["mean"])
            spread = None if measured["std"] is None else as_percent(measured["std"])
            axes.bar(place, height, 0.8, yerr=spread, color=PALE, edgecolor=DARK, capsize=2)
            _drop(axes, place, row, reference)
        if reference is not None:
            axes.axhline(100 * reference, color=DARK, linestyle="--", linewidth=1, label="IID, measured")
        axes.set_xticks(places, [row["label"].replace(":", "\n") for row in rows])
        axes.grid(visible=False, axis="x")
        axes.set(xlabel="label skew", ylabel="accuracy on the test set (%)")
        return finish(figure, path, title, note, [axes], 2)


def figure3(path: Path, result: Mapping[str, Any]) -> list[Path]:
    """Two clients in a plane of parameters, a panel per method, and accuracy per class after the last local updates.

    `result` is that of `two_clients`.
    """
    methods = {method["algorithm"]: method for method in result["methods"]}
    styles = looks(methods)
    with canvas(9.6, 1.5 + 2.3 * len(methods)) as figure:
        left, right = figure.subfigures(1, 2, width_ratios=[1.6, 1])
        planes = left.subplots(len(methods), 1, squeeze=False, sharex=True)[:, 0].tolist()
        for axes, (name, method) in zip(planes, methods.items(), strict=True):
            _plane(axes, result, method, styles[name])
            axes.set_title(f"{name}: the global model ends at a pooled loss of {method['pooled_loss']:.3f}", fontsize=8)
        planes[-1].set_xlabel("along the line from client 1's optimum to client 2's")
        bars = right.subplots()
        _after_by_client(bars, result, methods, styles)
        legend(left, planes, 2)
        legend(right, [bars], 3)
        return finish(figure, path, _two_clients_title(result))


def figure4(path: Path, cards: Mapping[str, Mapping[str, Any]], title: str) -> list[Path]:
    """How many examples of each label a client holds; `cards` has a partition's card for each panel title."""
    counts = {name: card["counts"][:_CLIENTS] for name, card in cards.items()}
    top = max(max(row) for rows in counts.values() for row in rows)
    classes = max(len(rows[0]) for rows in counts.values())
    width = 1.4 + sum(0.5 + 0.42 * len(rows) for rows in counts.values())
    with drawing(width, 1.6 + 0.26 * min(classes, 24), 1, len(counts), sharey=True) as (figure, [panels]):
        for axes, (name, rows) in zip(panels, counts.items(), strict=True):
            image = draw_rectangles(axes, rows, top)
            axes.set_title(name, fontsize=8)
        count_bar(figure, image, panels, top)
        return finish(figure, path, title)


def figure5(path: Path, cells: Mapping[str, Series], title: str, note: str | None = None) -> list[Path]:
    """Accuracy against rounds, a panel per cell; a cell has for each method the records of each seed."""
    styles = looks(dict.fromkeys(name for series in cells.values() for name in series))
    columns = min(2, len(cells))
    rows = -(-len(cells) // columns)
    with drawing(1.0 + 3.1 * columns, 0.9 + 2.3 * rows, rows, columns, sharex=True, sharey=True) as (figure, grid):
        panels = [axes for row in grid for axes in row]
        for axes, (name, series) in zip(panels, cells.items(), strict=False):
            draw_curves(axes, series, styles)
            axes.set_title(name, fontsize=8)
        for row in grid:
            row[0].set_ylabel("test accuracy (%)")
            mark_break(row[0])
        for axes in grid[-1]:
            axes.set_xlabel("communication round")
        for axes in panels[len(cells) :]:
            axes.set_visible(False)
        return finish(figure, path, title, note, panels)


def figure6(path: Path, effects: Mapping[str, Mapping[str, Any]], note: str | None = None) -> list[Path]:
    """Accuracy per class after local updates, averaged over clients, and after aggregation.

    `effects` has a result of `before_after` for each method, all from the same global model.
    """
    first, styles = next(iter(effects.values())), looks(effects)
    wide = min(6.0, 1.4 + 0.09 * first["classes"] * (len(effects) + 1))
    with drawing(1.0 + 2 * wide, 3.2, 1, 2, sharey=True) as (figure, [panels]):
        shown = {"mean_after": "before aggregation, mean over clients", "aggregated": "after aggregation"}
        for axes, (measure, words) in zip(panels, shown.items(), strict=True):
            for position, (name, effect) in enumerate(effects.items()):
                places = range(first["classes"])
                _bars(axes, places, effect[measure], (position, len(effects)), name, styles[name])
            mark_classes(axes, [as_percent(value) for value in first["before"]])
            axes.set_title(words, fontsize=8)
            axes.set_xlabel("class")
            class_ticks(axes, first["classes"])
        panels[0].set_ylabel("accuracy on the test set (%)")
        return finish(figure, path, standing(effects), note, panels, 3)


def _grouped(groups: Sequence[str]) -> list[float]:
    """Places on the axis with a gap between groups."""
    gaps = accumulate((0.6 * (a != b) for a, b in pairwise(groups)), initial=0.0)
    return [i + gap for i, gap in enumerate(gaps)]


def _drop(axes: Any, place: float, row: Mapping[str, Any], reference: float | None) -> None:
    """How far below IID a bar ends, and where it would end with the paper's drop."""
    mean = row["accuracy"]["mean"]
    if reference is None or mean is None or row["group"] == "iid":
        return
    text = signed(100 * (mean - reference))
    if row.get("printed_drop") is not None:
        text += f"\n(−{row['printed_drop']:.1f})"
        named = bool(axes.get_legend_handles_labels()[1])
        label = "_" if named else "IID, measured, less the drop the paper prints (in brackets)"
        end = 100 * reference - row["printed_drop"]
        axes.plot(place, end, "D", markersize=5, markerfacecolor="white", color=DARK, label=label)
    axes.annotate(text, (place, 0), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=7)


def _plane(axes: Any, result: Mapping[str, Any], method: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    contour = result["contour"]
    lowest = min(min(row) for row in contour["loss"])
    highest = max(max(row) for row in contour["loss"])
    levels = [lowest + (highest - lowest) * (step / 12) ** 2 for step in range(1, 13)]
    axes.contour(contour["u"], contour["v"], contour["loss"], levels=levels, colors="#bdbdbd", linewidths=0.6)
    for k, dashes in enumerate(("-", ":")):
        for before, after in zip(method["global"], method["local"], strict=False):
            axes.plot(*_columns([before, after[k]]), color=style["color"], linestyle=dashes, linewidth=0.6, alpha=0.6)
        marker = {"marker": "<>"[k], "markersize": 3, "linestyle": "none"}
        axes.plot(*_columns([after[k] for after in method["local"]]), color=style["color"], alpha=0.7, **marker)
        axes.plot([], [], color=DARK, label=f"client {k + 1}'s model after a local update", **marker)
    line = {**style, "marker": ".", "linestyle": "-", "linewidth": 1.4, "markersize": 4}
    axes.plot(*_columns(method["global"]), **line, label=f"global model, {method['algorithm']}")
    axes.plot(*method["global"][0][:2], "s", markersize=5, markerfacecolor="white", color=DARK, label="start")
    _optima(axes, result, method, style)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    axes.set_ylabel("across")


def _optima(axes: Any, result: Mapping[str, Any], method: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    """The three corners of the plane, and where each client's own loss under this method has its minimum."""
    star = {"marker": "*", "markersize": 12, "markerfacecolor": "white", "color": "black", "linestyle": "none"}
    axes.plot(*result["pooled_optimum"][:2], **star, zorder=1.5, label="optimum of all data")
    for k, corner in enumerate(result["client_optima"]):
        shape = {"marker": "<>"[k], "markersize": 9, "markerfacecolor": "white", "color": "black", "linestyle": "none"}
        axes.plot(*corner[:2], **shape, label=f"optimum of client {k + 1}'s data")
        own = {"marker": "<>"[k], "markersize": 5, "linestyle": "none"}
        axes.plot(*method["optima"][k][:2], color=style["color"], **own)
        axes.plot([], [], color=DARK, label=f"optimum of client {k + 1}'s own loss under the method", **own)


def _after_by_client(
    axes: Any, result: Mapping[str, Any], methods: Mapping[str, Any], styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """Bars of accuracy per class: both local models of the last round, and the aggregated one."""
    classes = len(result["counts"][0])
    names = [chr(ord("A") + c) for c in range(classes)]
    parts = ["client 1", "client 2", "aggregated"]
    places = [part * (classes + 1) + c for part in range(len(parts)) for c in range(classes)]
    for position, (name, method) in enumerate(methods.items()):
        measured = method["per_class_accuracy"]
        values = [value for row in (*measured["after"], measured["aggregated"]) for value in row]
        _bars(axes, places, values, (position, len(methods)), name, styles[name])
    axes.set_xticks(places, names * len(parts))
    for part, words in enumerate(parts):
        axes.text(part * (classes + 1) + (classes - 1) / 2, 103, words, ha="center", fontsize=7)
    axes.set(ylim=(0, 110), yticks=range(0, 101, 20), xlabel="class", ylabel="accuracy on the test set (%)")
    axes.set_title("after the last local update", fontsize=8)
    axes.grid(visible=False, axis="x")


def _bars(
    axes: Any,
    places: Sequence[int],
    values: Sequence[float | None],
    turn: tuple[int, int],
    name: str,
    style: Mapping[str, Any],
) -> None:
    """A method's bars next to those of the others, in its colour; `turn` is its position and how many methods there
    are. Every second method is hatched, so that they remain distinct in grey."""
    position, methods = turn
    shifted = [place + (position + 0.5) * 0.8 / methods - 0.4 for place in places]
    look = {"color": style["color"], "hatch": "////" if position % 2 else "", "edgecolor": "white", "linewidth": 0.4}
    axes.bar(shifted, [as_percent(value) for value in values], 0.8 / methods, label=name, **look)


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[1] for point in points]


def _two_clients_title(result: Mapping[str, Any]) -> str:
    rounds = f"{result['rounds']} rounds of {result['local_epochs']} epochs"
    clients = "; ".join(f"client {k + 1} holds {_listed(row)}" for k, row in enumerate(result["counts"]))
    return f"Two clients, {rounds}, seed {result['seed']}; {clients}; best pooled loss {result['pooled_loss']:.3f}"


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(f"{n} {chr(ord('A') + c)}" for c, n in enumerate(counts))
