"""Figures as PNG and SVG, or PDF. Matplotlib is imported when the first one is drawn."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedskew.core.files import check_target, naming
from fedskew.report.style import RC, look

_MOST_BANDS, _MOST_CLIENTS = 4, 40


def save(figure: Any, path: Path, vector: str = "svg") -> list[Path]:
    """The figure as PNG and also as SVG or PDF, without a date, so that the same data give the same file."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; allowed: a file, for example {path / 'figure.png'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [path.with_suffix(".png"), path.with_suffix(f".{vector}")]
    for file, unwanted in zip(made, ("Software", "Date" if vector == "svg" else "CreationDate"), strict=True):
        check_target(file)
        with naming(file):
            figure.savefig(file, metadata={unwanted: None})
    return made


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """An empty figure in our style, independent of pyplot's global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


@contextmanager
def drawing(
    width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any
) -> Iterator[tuple[Any, list[list[Any]]]]:
    """A figure with rows and columns of axes; `shared` goes to Matplotlib's `subplots`."""
    with canvas(width, height) as figure:
        yield figure, figure.subplots(rows, columns, squeeze=False, **shared).tolist()


def frame(figure: Any, title: str, note: str | None = None) -> None:
    """The title above all panels, with a note as its second line."""
    figure.suptitle(f"{title}\n{note}" if note else title, fontsize=9, x=0.01, ha="left")


def legend(figure: Any, panels: Sequence[Any], columns: int) -> None:
    """Everything that has a label, once, under the panels."""
    found = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", fontsize=7, ncols=min(columns, len(found))
        )


Series = Mapping[str, Sequence[Sequence[dict[str, Any]]]]
"""For each method, the records of each seed."""


def curves(path: Path, series: Series, title: str, measure: str = "accuracy", vector: str = "svg") -> list[Path]:
    """`curve_figure`, saved."""
    with drawing(6.4, 3.9) as (figure, [[axes]]):
        _draw_with_legend(figure, axes, series, title, measure)
        return save(figure, path, vector)


def curve_figure(series: Series, title: str, measure: str = "accuracy") -> Any:
    """A measure against rounds: one line per method, the mean over its seeds; a few methods also get a band of one
    standard deviation."""
    with drawing(6.4, 3.9) as (figure, [[axes]]):
        _draw_with_legend(figure, axes, series, title, measure)
        return figure


def _draw_with_legend(figure: Any, axes: Any, series: Series, title: str, measure: str) -> None:
    draw_method_curves(axes, series, title, measure)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)


def draw_method_curves(axes: Any, series: Series, title: str, measure: str = "accuracy") -> None:
    """The curves of methods, each in its style, with axis labels."""
    draw_curves(axes, series, {name: look(name, position) for position, name in enumerate(series)}, measure)
    axes.set_xlabel("communication round")
    axes.set_ylabel(f"{measure.replace('_', ' ')} on the test set (%)")
    axes.set_title(title, fontsize=9, loc="left")


def draw_curves(
    axes: Any,
    series: Mapping[str, Sequence[Sequence[dict[str, Any]]]],
    styles: Mapping[str, dict[str, Any]],
    measure: str = "accuracy",
) -> None:
    """A measure in per cent against rounds: for each method a sequence of records per seed."""
    for position, (name, seeds) in enumerate(series.items()):
        by_round: dict[int, list[float]] = {}
        for records in seeds:
            for record in records:
                if record.get(measure) is not None:
                    by_round.setdefault(record["round"], []).append(100 * record[measure])
        rounds = sorted(by_round)
        mean = [statistics.fmean(by_round[r]) for r in rounds]
        spread = [statistics.stdev(by_round[r]) if len(by_round[r]) > 1 else 0.0 for r in rounds]
        style = styles[name]
        axes.plot(
            rounds, mean, label=name, linewidth=1.4, markersize=4, markevery=(0.05 * position % 0.2, 0.2), **style
        )
        if len(series) > _MOST_BANDS:
            continue
        low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(rounds, low, high, color=style["color"], alpha=0.10, linewidth=0)
    axes.set_xlim(left=0)


def rectangles(path: Path, card: Mapping[str, Any], title: str, vector: str = "svg") -> list[Path]:
    """How many examples of each label each of the first clients holds."""
    counts = card["counts"][:_MOST_CLIENTS]
    clients, classes = len(counts), len(counts[0])
    numbers = _has_room(counts)
    with drawing(1.6 + 0.36 * clients if numbers else 6.4, 1.4 + 0.26 * min(classes, 24)) as (figure, [[axes]]):
        top = max(max(row) for row in counts)
        image = draw_rectangles(axes, counts, top)
        if clients < len(card["counts"]):
            axes.set_xlabel(f"client (first {clients} of {card['clients']})")
        axes.set_title(title, fontsize=9, loc="left")
        count_bar(figure, image, [axes], top)
        return save(figure, path, vector)


def draw_rectangles(axes: Any, counts: Sequence[Sequence[int]], top: int) -> Any:
    """Label counts [clients][labels] as shades of their square root up to that of `top`, with the numbers if there is
    room."""
    clients, classes = len(counts), len(counts[0])
    shades = [[row[c] ** 0.5 for row in counts] for c in range(classes)]
    image = axes.imshow(shades, cmap="Blues", aspect="auto", vmin=0, vmax=top**0.5)
    for c in range(classes if _has_room(counts) else 0):
        for k in range(clients):
            dark = shades[c][k] > 0.6 * top**0.5
            shown = str(counts[k][c]) if counts[k][c] else "·"
            axes.text(k, c, shown, ha="center", va="center", fontsize=6, color="white" if dark else "#333333")
    axes.grid(visible=False)
    axes.set_xlabel("client")
    axes.set_ylabel("label")
    axes.set_yticks(range(0, classes, max(1, classes // 20)))
    axes.set_xticks(range(0, clients, max(1, clients // 20)))
    return image


def count_bar(figure: Any, image: Any, axes: Sequence[Any], top: int) -> None:
    """What the shades of rectangles mean."""
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    ticks = [top * share for share in (0, 0.1, 0.4, 1)]
    bar.set_ticks([tick**0.5 for tick in ticks], labels=[f"{tick:.0f}" for tick in ticks])
    bar.set_label("examples")


def _has_room(counts: Sequence[Sequence[int]]) -> bool:
    return len(counts) <= 24 and len(counts[0]) <= 20
