"""Figures as PNG and SVG. Matplotlib is imported when the first one is drawn."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.report.style import RC, look

_MOST_BANDS = 4


def save(figure: Any, path: Path) -> list[Path]:
    """The figure beside itself as PNG and SVG, without a date in it, so that the same data give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [path.with_suffix(".png"), path.with_suffix(".svg")]
    figure.savefig(made[0], metadata={"Software": None})
    figure.savefig(made[1], metadata={"Date": None})
    return made


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure with one set of axes, apart from pyplot's global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, figure.add_subplot()


def curves(
    path: Path, series: Mapping[str, Sequence[Sequence[dict[str, Any]]]], title: str, measure: str = "accuracy"
) -> list[Path]:
    """A measure against rounds: one line per method, the mean over its seeds; a few methods also get a band of one
    standard deviation."""
    import matplotlib

    with matplotlib.rc_context(RC):
        figure, axes = new_figure(6.4, 3.9)
        for position, (name, seeds) in enumerate(series.items()):
            by_round: dict[int, list[float]] = {}
            for records in seeds:
                for record in records:
                    if record.get(measure) is not None:
                        by_round.setdefault(record["round"], []).append(100 * record[measure])
            rounds = sorted(by_round)
            mean = [statistics.fmean(by_round[r]) for r in rounds]
            spread = [statistics.stdev(by_round[r]) if len(by_round[r]) > 1 else 0.0 for r in rounds]
            style = look(name, position)
            axes.plot(
                rounds, mean, label=name, linewidth=1.4, markersize=4, markevery=(0.05 * position % 0.2, 0.2), **style
            )
            if len(series) > _MOST_BANDS:
                continue
            low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(rounds, low, high, color=style["color"], alpha=0.10, linewidth=0)
        axes.set_xlabel("communication round")
        axes.set_ylabel(f"{measure.replace('_', ' ')} on the test set (%)")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xlim(left=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
        return save(figure, path)


def rectangles(path: Path, card: Mapping[str, Any], title: str, most: int = 40) -> list[Path]:
    """The paper's figure 4: how many examples of each label each client holds (the first `most` clients)."""
    import matplotlib

    counts = card["counts"][:most]
    clients, classes = len(counts), len(counts[0])
    numbers = clients <= 24 and classes <= 20
    with matplotlib.rc_context(RC):
        figure, axes = new_figure(1.6 + 0.36 * clients if numbers else 6.4, 1.4 + 0.26 * min(classes, 24))
        top = max(max(row) for row in counts)
        shares = [[row[c] ** 0.5 for row in counts] for c in range(classes)]
        image = axes.imshow(shares, cmap="Blues", aspect="auto", vmin=0, vmax=top**0.5)
        for c in range(classes if numbers else 0):
            for k in range(clients):
                dark = shares[c][k] > 0.6 * top**0.5
                shown = str(counts[k][c]) if counts[k][c] else "·"
                axes.text(k, c, shown, ha="center", va="center", fontsize=6, color="white" if dark else "#333333")
        axes.grid(visible=False)
        axes.set_xlabel(
            "client" if clients == len(card["counts"]) else f"client (first {clients} of {card['clients']})"
        )
        axes.set_ylabel("label")
        axes.set_yticks(range(0, classes, max(1, classes // 20)))
        axes.set_xticks(range(0, clients, max(1, clients // 20)))
        axes.set_title(title, fontsize=9, loc="left")
        bar = figure.colorbar(image, ax=axes, pad=0.02)
        ticks = [top * share for share in (0, 0.1, 0.4, 1)]
        bar.set_ticks([tick**0.5 for tick in ticks], labels=[f"{tick:.0f}" for tick in ticks])
        bar.set_label("examples")
        return save(figure, path)
