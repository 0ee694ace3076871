"""What `fedskew diagnose` draws, from its document. Accuracies are fractions; None is unknown or infinite."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.report.class_figures import before_and_after, feature_maps, mark_classes, standing
from fedskew.report.figures import drawing, finish, mark_break, no_mathematics
from fedskew.report.style import DARK, KIND_LOOKS, PALE

_MOVE = r"$\Delta w_r \cdot h^{(r)}"
_SIGNS = {
    True: {"color": "#d7301f", "marker": "v", "label": rf"{_MOVE} < 0$: the update deviates"},
    False: {"color": "#2171b5", "marker": "^", "label": rf"{_MOVE} \geq 0$"},
}
Document = Mapping[str, Any]


def diagnostic_figures(folder: Path, document: Document) -> list[Path]:
    """All figures of a document, as PNG and SVG; a figure without data is left out."""
    made: list[Path] = []
    for name, draw in FIGURES.items():
        made += draw(folder / name, document)
    return made


def bound_figure(path: Path, document: Document) -> list[Path]:
    """n_j / n_r against D_jr for every client and pair of classes, a panel per method; above the line they exceed it.

    Pairs with a missing class r are in a separate band on top: their n_j / n_r is infinite.
    """
    found = _of_methods(document, "deviation")
    pairs = {name: [row for row in one["pairs"] if (row["bound"] or 0) > 0] for name, one in found.items()}
    (left, right), (low, high) = (
        _range([r[name] for rows in pairs.values() for r in rows]) for name in ("bound", "ratio")
    )
    with drawing(1.0 + 3.2 * len(found), 4.1, 1, len(found), sharex=True, sharey=True) as (figure, [panels]):
        for axes, (name, rows) in zip(panels, pairs.items(), strict=True):
            _pairs(axes, rows, high)
            axes.plot([low, high], [low, high], color=DARK, linewidth=1, label="$n_j / n_r = D_{jr}$")
            axes.axhspan(high, 4 * high, color="#f2f2f2", zorder=0, label=r"$r$ is missing, $n_j / n_r = \infty$")
            axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, 4 * high))
            axes.tick_params(which="minor", left=False)  # the band on top has no values
            axes.set_xlabel("deviation bound $D_{jr}$")
            axes.set_title(_share_above(name, found[name]), fontsize=8)
        panels[0].set_ylabel("$n_j / n_r$")
        return finish(figure, path, standing(_of_methods(document, "class_accuracy")), panels=panels)


def reliability_figure(path: Path, document: Document) -> list[Path]:
    """Accuracy against confidence of the global model, and how many test examples have which confidence."""
    calibration = document["calibration"]
    bins = calibration["reliability"]
    known = [row for row in bins if row["count"]]
    width = 1 / len(bins)
    with drawing(4.2, 4.4, 2, 1, sharex=True, height_ratios=[3, 1]) as (figure, [[axes], [below]]):
        places = [row["low"] + width / 2 for row in known]
        axes.bar(places, [row["accuracy"] for row in known], width, color=PALE, edgecolor="white", label="accuracy")
        axes.plot([0, 1], [0, 1], color=DARK, linestyle="--", linewidth=1, label="confidence = accuracy")
        dots = {"marker": "o", "markersize": 4, "linewidth": 1.2, "color": "#d7301f"}
        mean = [row["confidence"] for row in known], [row["accuracy"] for row in known]
        axes.plot(*mean, label="mean confidence and accuracy of a bin", **dots)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
        below.bar([row["low"] + width / 2 for row in bins], [row["count"] for row in bins], width, color=PALE)
        below.set(xlabel="confidence", ylabel="examples")
        note = f"expected calibration error {100 * calibration['ece']:.2f} %"
        return finish(figure, path, _heading(document), note, [axes], 2)


def confusion_figure(path: Path, document: Document) -> list[Path]:
    """Which class the global model takes test examples of each class for; shades are shares of a row."""
    counts = document["calibration"]["confusion"]
    classes = len(counts)
    shares = [[n / max(1, sum(row)) for n in row] for row in counts]
    side = 1.8 + 0.3 * min(classes, 20)
    with drawing(side + 0.9, side) as (figure, [[axes]]):
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for true in range(classes if classes <= 20 else 0):
            for guess, n in enumerate(counts[true]):
                colour = "white" if shares[true][guess] > 0.6 else DARK
                axes.text(guess, true, str(n or "·"), ha="center", va="center", fontsize=6, color=colour)
        axes.grid(visible=False)
        ticks = range(0, classes, max(1, classes // 10))
        axes.set(xlabel="taken for class", ylabel="class", xticks=ticks, yticks=ticks)
        figure.colorbar(image, ax=axes, pad=0.02, label="share of the class")
        return finish(figure, path, _heading(document))


def classifier_figure(path: Path, document: Document) -> list[Path]:
    """Norms of the classifier's rows after local updates, by what a class is to the client; a panel per method."""
    methods = document["methods"]
    with drawing(1.0 + 3.4 * len(methods), 3.4, 1, len(methods), sharey=True) as (figure, [panels]):
        for axes, (name, found) in zip(panels, methods.items(), strict=True):
            rows = found["drift"]["classifier"]
            before = rows["before"]["norm"]
            _norms(axes, found["class_accuracy"]["clients"], rows["client_norm"])
            mark_classes(axes, before)
            axes.set_xticks(range(0, len(before), max(1, len(before) // 10)))
            axes.grid(visible=False, axis="x")
            axes.set_title(no_mathematics(name), fontsize=8)
            axes.set_xlabel("class $y$")
        panels[0].set_ylabel("$|w_y|$ after a local update")
        mark_break(panels[0])
        return finish(figure, path, standing(_of_methods(document, "class_accuracy")), panels=panels)


def feature_figure(path: Path, document: Document) -> list[Path]:
    """t-SNE of the features of three classes of a client, a panel per method."""
    maps = {name: found["features"] for name, found in document["methods"].items() if found["features"]}
    return feature_maps(path, maps) if maps else []


FIGURES: dict[str, Callable[[Path, Document], list[Path]]] = {
    "before_after": lambda path, document: before_and_after(path, _of_methods(document, "class_accuracy")),
    "deviation_bound": bound_figure,
    "reliability": reliability_figure,
    "confusion": confusion_figure,
    "classifier_norms": classifier_figure,
    "features": feature_figure,
}


def _of_methods(document: Document, measure: str) -> dict[str, Any]:
    return {name: found[measure] for name, found in document["methods"].items()}


def _heading(document: Document) -> str:
    model = f"global model of round {document['round']}, seed {document['seed']}"
    return f"{document['title']}, {document['algorithm']}\n{model}"


def _range(values: Sequence[float | None]) -> tuple[float, float]:
    """Powers of ten around positive values."""
    logs = [math.log10(value) for value in values if value] or [0.0]
    return 10.0 ** math.floor(min(logs)), 10.0 ** (math.floor(max(logs)) + 1)


def _pairs(axes: Any, rows: Sequence[Mapping[str, Any]], top: float) -> None:
    """Pairs styled by their sign: minority classes at their values, missing ones in a band above `top`."""
    for falls, look in _SIGNS.items():
        of = [row for row in rows if (row["own"] < 0) == falls]
        # Points of the band are spread over its height, so that all can be seen.
        high = [row["ratio"] or top * 4 ** ((i * 0.618) % 0.8 + 0.1) for i, row in enumerate(of)]
        axes.scatter([row["bound"] for row in of], high, s=12, alpha=0.7, linewidths=0, **look)


def _share_above(name: str, found: Mapping[str, Any]) -> str:
    name = no_mathematics(name)
    if not found["softmax"]:
        return f"{name}: its loss is not based on a softmax"
    summary = found["summary"]
    if not summary["stated"]:
        return f"{name}: no pair with $D_{{jr}} > 0$"
    held = summary["signs"]["above"]["update"]["own"]
    signs = "" if held is None else f"\nthere {_MOVE} < 0$ in {100 * held:.0f} %"
    return f"{name}: $n_j / n_r > D_{{jr}}$ for {100 * summary['above']:.0f} % of pairs{signs}"


def _norms(axes: Any, clients: Sequence[Mapping[str, Any]], norms: Sequence[Sequence[float]]) -> None:
    """A point per client and class, each kind in its own column."""
    for position, (kind, look) in enumerate(KIND_LOOKS.items()):
        points = [
            (c + 0.25 * (position - 1), row[c])
            for client, row in zip(clients, norms, strict=False)
            for c in client["groups"][kind]["classes"]
        ]
        if points:
            axes.scatter(*zip(*points, strict=True), s=9, linewidths=0.7, alpha=0.8, label=kind, **look)
