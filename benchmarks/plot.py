"""The figure of docs/performance.md, from results/: `python -m benchmarks.plot`."""

import json
from pathlib import Path
from typing import Any

from fedskew.report.figures import save
from fedskew.report.style import RC

OURS, OTHERS = "#d7301f", "#9e9e9e"


def medians(name: str) -> dict[str, float]:
    figures = json.loads(Path(f"results/benchmark_{name}.json").read_text())["figures"]
    return {row["name"]: row["value"]["median"] for row in figures if row["unit"] == "ms"}


def panels() -> dict[str, dict[str, float]]:
    """What each panel shows: milliseconds a round, all of one file, since another run has another hour and load."""
    core, peers, convnet = medians("core"), medians("peers"), medians("convnet")
    gpu: list[dict[str, Any]] = json.loads(Path("results/benchmark_gpu.json").read_text())["rounds"]

    def on_gpu(model: str) -> dict[str, float]:
        rows = [row for row in gpu if row["model"] == model]
        named = {f"{row['what'].replace('fedskew ', '')}, {row['precision']}": row["ms"] for row in rows}
        return dict(sorted(named.items(), key=lambda pair: -pair[1]))

    return {
        "simulators: logistic regression, 100 of 1,000 clients, 2 CPU cores": {
            "Flower's simulation": peers["flwr, simulation"],
            "pfl": peers["pfl"],
            "fluke": peers["fluke"],
            "stacked": peers["fedskew, stacked"],
        },
        "loops: the same model and clients, one thread, another run": {
            "one client after another": core["client by client"],
            "by hand, autograd": core["by hand, autograd"],
            "stacked": core["stacked"],
        },
        "McMahan's CNN, 4 clients x 512 images, 2 CPU cores": {
            "bare centralised loop": convnet["bare loop"],
            "threaded": convnet["threaded"],
        },
        "McMahan's CNN, 20 clients x 2,500 images, one H200": on_gpu("mcmahan"),
        "the paper's CNN, 20 clients x 2,500 images, one H200": on_gpu("cnn"),
    }


def main() -> None:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        shown = panels()
        figure = Figure(figsize=(7.2, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        heights = [len(rows) + 1 for rows in shown.values()]
        for axes, (title, rows) in zip(
            figure.subplots(len(shown), 1, height_ratios=heights), shown.items(), strict=True
        ):
            names = list(rows)[::-1]
            ours = [name.startswith(("stacked", "threaded", "graphed")) for name in names]
            for i, (name, mine) in enumerate(zip(names, ours, strict=True)):
                axes.plot(rows[name], i, "o", markersize=7, color=OURS if mine else OTHERS)
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(-0.6, len(names) - 0.4)
            axes.set_xscale("log")  # which has no zero for bars to begin at
            axes.set_xlim(1, 4000)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_title(title, fontsize=8, loc="left")
            axes.tick_params(labelsize=7)
            for i, name in enumerate(names):
                axes.text(
                    rows[name] * 1.12,
                    i,
                    f"{rows[name]:,.0f}" if rows[name] >= 100 else f"{rows[name]:.3g}",
                    va="center",
                    fontsize=7,
                )
        axes.set_xlabel("milliseconds a round (ours in red)")
        print(*save(figure, Path("docs/figures/performance")), sep="\n")


if __name__ == "__main__":
    main()
