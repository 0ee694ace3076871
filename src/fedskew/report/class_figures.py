"""What a local update does, drawn: accuracy per class before and after it, and the features it leaves."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.report.figures import drawing, finish, no_mathematics
from fedskew.report.style import DARK, KIND_LOOKS, PALE, for_paper, looks
from fedskew.runs.summary import counted

_MOST = 5


def before_and_after(path: Path, effects: Mapping[str, Mapping[str, Any]], note: str | None = None) -> list[Path]:
    """A client's label counts as bars, accuracy per class before and after its local update as lines.

    `effects` has a result of `before_after` for each method; methods are rows, clients are columns.
    """
    columns = min(_MOST, *(len(effect["clients"]) for effect in effects.values()))
    styles, top = looks(effects), max(max(c["counts"]) for e in effects.values() for c in e["clients"][:_MOST])
    with drawing(1.5 + 1.9 * columns, 0.9 + 1.75 * len(effects), len(effects), columns, sharex=True, sharey=True) as (
        figure,
        grid,
    ):
        shown = []
        for panels, (name, effect) in zip(grid, effects.items(), strict=True):
            for column, (axes, client) in enumerate(zip(panels, effect["clients"], strict=False)):
                shown.append(_before_after(axes, client, effect["before"], name, styles[name], top))
                axes.set_title(f"client {client['client']}" if panels is grid[0] else "", fontsize=8)
                shown[-1].tick_params(right=column == columns - 1, labelright=column == columns - 1)
            panels[0].set_ylabel(f"{name}\n{'' if for_paper() else 'training '}examples")
            shown[-1].set_ylabel("accuracy (%)")
        for axes in grid[-1]:
            axes.set_xlabel("class")
        return finish(figure, path, standing(effects), note, [grid[0][0], *shown], 2 if columns < 4 else 4)


def feature_maps(path: Path, maps: Mapping[str, Mapping[str, Any]], note: str | None = None) -> list[Path]:
    """Features of a majority, a minority and a missing class of a client, a panel per method.

    `maps` has a result of `features_after` for each method. A panel says for each class which share of the nearest
    neighbours, among the features themselves, are of the same class.
    """
    with drawing(0.8 + 3.0 * len(maps), 3.9, 1, len(maps)) as (figure, [panels]):
        for axes, (name, made) in zip(panels, maps.items(), strict=True):
            names = made.get("class_names")
            for group in made["groups"]:
                called = f"{group['class']} ({names[group['class']]})" if names else str(group["class"])
                label = f"{group['kind']}: class {called}, {group['count']} examples"
                axes.scatter(
                    *zip(*group["points"], strict=True), s=9, linewidths=0.7, label=label, **KIND_LOOKS[group["kind"]]
                )
            own = ", ".join(f"{group['kind']} {group['neighbours']:.2f}" for group in made["groups"])
            axes.set_title(f"{no_mathematics(name)}: nearest neighbours of the same class\n{own}", fontsize=7)
            axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        client = next(iter(maps.values()))["client"]
        return finish(figure, path, f"{standing(maps)}, client {client}", note, panels, 3)


def standing(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Which global model the results start from."""
    first = next(iter(results.values()))
    epochs = counted(first["local_epochs"], "local epoch")
    return f"{first['title']}; {epochs} from the global model of round {first['round']}, seed {first['seed']}"


def as_percent(value: float | None) -> float:
    return math.nan if value is None else 100 * value


def mark_classes(axes: Any, values: Sequence[float]) -> None:
    """The global model's value for each class, across what is drawn there."""
    for c, value in enumerate(values):
        label = "_" if c else "the global model before"
        axes.plot([c - 0.45, c + 0.45], [value] * 2, color="black", linewidth=1.2, label=label)


def class_ticks(axes: Any, classes: int) -> None:
    axes.set_xticks(range(0, classes, 1 if classes <= 12 else -(-classes // 5)))
    axes.grid(visible=False, axis="x")


def _before_after(
    axes: Any, client: Mapping[str, Any], before: Sequence[float | None], name: str, style: Mapping[str, Any], top: int
) -> Any:
    """Bars on the left axis, lines on the right one, which is returned."""
    classes = len(client["counts"])
    axes.bar(range(classes), client["counts"], 0.8, color=PALE, label="training examples")
    axes.set_ylim(0, 1.05 * top)
    axes.grid(visible=False)
    class_ticks(axes, classes)
    right = axes.twinx()
    right.set_ylim(-2, 102)
    right.grid(visible=False)
    size = {"linewidth": 1.1, "markersize": 3.2 if classes <= 20 else 0}
    dashed = {"linestyle": "--", "marker": ".", "color": DARK}
    right.plot([as_percent(a) for a in before], label="accuracy before: the global model", **dashed, **size)
    solid = {**style, "linestyle": "-"}
    right.plot([as_percent(a) for a in client["after"]], label=f"after its local update, {name}", **solid, **size)
    return right
