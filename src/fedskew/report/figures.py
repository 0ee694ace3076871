"""Figures as PNG and SVG, or PDF. Matplotlib is imported when the first one is drawn."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedskew.core.files import check_target, naming
from fedskew.report.evened import Points, evened
from fedskew.report.style import DARK, PAPER_SIZE, for_paper, look, settings, size_of

_MOST_BANDS, _MOST_CLIENTS = 4, 40
_HANDLE, _LETTER = 0.45, 0.065
"""Inches of a legend that a handle and a letter take in a paper."""
BAND, SHORT_BAND = "band: ± one standard deviation over seeds", "± 1 std over seeds"


def save(figure: Any, path: Path) -> list[Path]:
    """The figure as PNG and beside it as SVG or PDF, without a date, so that the same data give the same file. For a
    paper it is one PDF."""
    import matplotlib

    kinds = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    ending = path.suffix.removeprefix(".")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; allowed: a file, for example {path / 'figure.png'}")
    if ending and ending not in kinds:
        raise ValueError(f"{path} ends in .{ending}; allowed for a figure: .{', .'.join(kinds)}, or no ending")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = []
    for kind in ("pdf",) if for_paper() else ("png", "pdf" if ending == "pdf" else "svg"):
        file = path.with_suffix(f".{kind}")
        check_target(file)
        with naming(file), matplotlib.rc_context(settings()):
            figure.savefig(file, metadata={kinds[kind]: None})
        made.append(file)
    return made


def files_of(path: Path) -> list[Path]:
    """All that `save` may write for a figure of this name."""
    return [path.with_suffix(f".{kind}") for kind in ("png", "svg", "pdf")]


def finish(
    figure: Any, path: Path, title: str, note: str | None = None, panels: Sequence[Any] = (), columns: int = 4
) -> list[Path]:
    """The figure with its title and one legend of all that the panels show, saved."""
    frame(figure, title, note)
    legend(figure, panels, columns)
    return save(figure, path)


@contextmanager
def canvas(width: float, height: float) -> Iterator[Any]:
    """An empty figure in our style, independent of pyplot's global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(settings()):
        figure = Figure(figsize=size_of(width, height), layout="constrained")
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
    """The title above all panels, with a note as its second line; a paper has captions instead."""
    if not for_paper():
        title = no_mathematics(title)
        figure.suptitle(f"{title}\n{note}" if note else title, fontsize=9, x=0.01, ha="left")


def legend(figure: Any, panels: Sequence[Any], columns: int) -> None:
    """Everything that has a label, once, under the panels."""
    found = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if not found:
        return
    size = 7
    if for_paper():
        size, room = PAPER_SIZE, figure.get_figure(root=True).get_figwidth()
        columns = min(columns, max(1, int(room / (_HANDLE + _LETTER * max(map(len, found))))))
    columns = min(columns, len(found))
    figure.legend(found.values(), found.keys(), loc="outside lower center", fontsize=size, ncols=columns)


def mark_break(axes: Any) -> None:
    """Two strokes across the foot of the upright axis where it does not begin at zero."""
    low, high = sorted(axes.get_ylim())
    if low <= 0 <= high or axes.get_yscale() == "log":
        return
    stroke = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 8, "color": "black", "linestyle": "none"}
    axes.plot([0, 0], [0.02, 0.045], transform=axes.transAxes, clip_on=False, label="_break", zorder=5, **stroke)


Series = Mapping[str, Sequence[Sequence[dict[str, Any]]]]
"""For each method, the records of each seed."""


def curves(
    path: Path,
    series: Series,
    title: str,
    measure: str = "accuracy",
    names: Mapping[str, str] | None = None,
) -> list[Path]:
    """`curve_figure`, saved; `names` are what methods are called."""
    return save(curve_figure(series, title, measure, names), path)


def curve_figure(series: Series, title: str, measure: str, names: Mapping[str, str] | None = None) -> Any:
    """A measure against rounds: all of them, and the last half from near. One line per method, the mean over its seeds;
    a few methods also get a band of one standard deviation."""
    styles = {name: look(name, position) for position, name in enumerate(series)}
    rows, columns = (2, 1) if for_paper() else (1, 2)
    with drawing(*((6.4, 8.0) if for_paper() else (8.8, 3.9)), rows, columns) as (figure, grid):
        whole, near = panels = [axes for row in grid for axes in row]
        for axes in panels:
            draw_curves(axes, series, styles, measure, names)
            axes.set_xlabel("communication round")
        whole.set_ylim(bottom=0)
        look_near(near)
        if not for_paper():
            whole.set_title("all rounds", fontsize=8)
            near.set_title("the last half", fontsize=8)
        words = measure.replace("_", " ")
        for axes in panels if for_paper() else [whole]:
            axes.set_ylabel(f"{words} (%)" if for_paper() else f"{words} on the test set (%)")
        frame(figure, title)
        legend(figure, panels, 4)
        return figure


def no_mathematics(text: str) -> str:
    """A text of the user's own as Matplotlib draws it: dollars are dollars."""
    return text.replace("$", r"\$")


def draw_method_curves(axes: Any, series: Series, title: str, measure: str = "accuracy") -> None:
    """The curves of methods, each in its style, with axis labels."""
    draw_curves(axes, series, {name: look(name, position) for position, name in enumerate(series)}, measure)
    axes.set(xlabel="communication round", ylabel=f"{measure.replace('_', ' ')} on the test set (%)")
    axes.set_title(no_mathematics(title), fontsize=9, loc="left")


def look_near(axes: Any) -> None:
    """The last half of the rounds alone, as high as what is drawn there."""
    last = max((x for line in axes.lines for x in line.get_xdata()), default=1)
    points = [(x, y) for line in axes.lines for x, y in zip(*line.get_data(), strict=True)]
    points += [
        tuple(point) for band in axes.collections for shape in band.get_paths() for point in shape.vertices.tolist()
    ]
    values = [y for x, y in points if x >= last / 2]
    if not values:
        return
    air = 0.05 * (max(values) - min(values)) or 1.0
    axes.set_xlim(last / 2, last + 0.02 * last)
    axes.set_ylim(max(0.0, min(values) - air), max(values) + air)
    mark_break(axes)


def draw_curves(
    axes: Any,
    series: Series,
    styles: Mapping[str, dict[str, Any]],
    measure: str = "accuracy",
    names: Mapping[str, str] | None = None,
) -> None:
    """A measure in per cent against rounds: for each method a sequence of records per seed. Where only the last rounds
    were all evaluated, they are a level, their mean, with a dot for every evaluated round."""
    banded = len(series) <= _MOST_BANDS and any(len(seeds) > 1 for seeds in series.values())
    for position, (name, seeds) in enumerate(series.items()):
        known = [[(r["round"], 100 * r[measure]) for r in records if r.get(measure) is not None] for records in seeds]
        lines = [evened(points) for points in known]
        rounds, mean, spread = _over_seeds(lines)
        style, size = styles[name], {"linewidth": 1.4, "markersize": 4}
        label = no_mathematics((names or {}).get(name, name))
        if lines == known:
            few = (0.05 * position % 0.2, 0.2)
            axes.plot(rounds, mean, label=label, markevery=few, **size, **style)
        else:
            axes.plot(rounds, mean, **size, **{**style, "marker": ""})
            dots = {**style, "linestyle": "none", "markersize": 3, "alpha": 0.6}
            axes.plot(*_over_seeds(known)[:2], **dots)
            axes.plot([], [], label=label, **size, **style)
        if banded:
            low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(rounds, low, high, color=style["color"], alpha=0.10, linewidth=0)
    if banded:
        axes.fill_between([], [], color="#888888", alpha=0.25, linewidth=0, label=SHORT_BAND if for_paper() else BAND)
    axes.set_xlim(left=0)
    axes.xaxis.get_major_locator().set_params(integer=True)  # there is no half a round


def _over_seeds(seeds: Sequence[Points]) -> tuple[list[float], list[float], list[float]]:
    """Rounds, and the mean and the standard deviation over seeds in each."""
    by_round: dict[float, list[float]] = {}
    for points in seeds:
        for round, value in points:
            by_round.setdefault(round, []).append(value)
    values = [by_round[round] for round in sorted(by_round)]
    spread = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
    return sorted(by_round), [statistics.fmean(each) for each in values], spread


def rectangles(path: Path, card: Mapping[str, Any], title: str) -> list[Path]:
    """How many examples of each label each of the first clients holds."""
    counts = card["counts"][:_MOST_CLIENTS]
    clients, classes = len(counts), len(counts[0])
    numbers = _has_room(counts)
    with drawing(1.6 + 0.36 * clients if numbers else 6.4, 1.4 + 0.26 * min(classes, 24)) as (figure, [[axes]]):
        top = max(max(row) for row in counts)
        image = draw_rectangles(axes, counts, top)
        if clients < len(card["counts"]):
            axes.set_xlabel(f"client (first {clients} of {card['clients']})")
        frame(figure, title)
        count_bar(figure, image, [axes], top)
        return save(figure, path)


def draw_rectangles(axes: Any, counts: Sequence[Sequence[int]], top: int) -> Any:
    """Label counts [clients][labels] as shades of their square root up to that of `top`, with numbers if they fit."""
    clients, classes = len(counts), len(counts[0])
    shades = [[row[c] ** 0.5 for row in counts] for c in range(classes)]
    image = axes.imshow(shades, cmap="Blues", aspect="auto", vmin=0, vmax=top**0.5)
    for c in range(classes if _has_room(counts) else 0):
        for k in range(clients):
            dark = shades[c][k] > 0.6 * top**0.5
            shown = str(counts[k][c]) if counts[k][c] else "·"
            axes.text(k, c, shown, ha="center", va="center", fontsize=6, color="white" if dark else DARK)
    axes.grid(visible=False)
    ticks = {"xticks": range(0, clients, max(1, clients // 20)), "yticks": range(0, classes, max(1, classes // 20))}
    axes.set(xlabel="client", ylabel="label", **ticks)
    return image


def count_bar(figure: Any, image: Any, axes: Sequence[Any], top: int) -> None:
    """What the shades of rectangles mean."""
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    ticks = [top * share for share in (0, 0.1, 0.4, 1)]
    bar.set_ticks([tick**0.5 for tick in ticks], labels=[f"{tick:.0f}" for tick in ticks])
    bar.set_label("examples")


def _has_room(counts: Sequence[Sequence[int]]) -> bool:
    return len(counts) <= 24 and len(counts[0]) <= 20
