"""What fitting the last layer gives on a small federation of drawn images (results/readout)."""

import statistics
from collections.abc import Mapping, Sequence

from docs.pages.claims import named
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import IID
from fedskew.runs.results import Result
from fedskew.runs.verdict import BASELINE, MEASURE, paired

Seeds = Mapping[int, float]


def by_cell(runs: Sequence[Result]) -> dict[str, dict[str, Seeds]]:
    """For each split and method the accuracy of each seed, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        cell = found.setdefault(run.short["partition"], {}).setdefault(run.short["algorithm"], {})
        cell[run.seed] = 100 * run.summary[MEASURE]
    return {cell: dict(methods) for cell, methods in found.items()}


def table(runs: Sequence[Result]) -> str:
    """Accuracy of each method in each split, its difference from FedAvg, and the share of the gap that it closes."""
    found = by_cell(runs)
    skewed = [cell for cell in found if cell != IID]
    ceiling = statistics.fmean(found[IID][BASELINE].values())

    def shown(cell: str, method: str) -> str:
        values = found[cell][method]
        mean, gain = statistics.fmean(values.values()), paired(values, found[cell][BASELINE])
        if method == BASELINE or gain is None:
            return f"{mean:.1f}"
        floor = statistics.fmean(found[cell][BASELINE].values())
        share = "" if cell == IID else f"; {100 * (mean - floor) / (ceiling - floor):.0f} %"
        return f"{mean:.1f} ({gain}{share})"

    methods = sorted(
        found[IID], key=lambda method: (method != BASELINE, -statistics.fmean(found[skewed[0]][method].values()))
    )
    rows = [[f"`{method}`", *(shown(cell, method) for cell in [*skewed, IID])] for method in methods]
    return "\n".join(as_markdown(["method", *(named(cell) for cell in skewed), "IID"], rows))
