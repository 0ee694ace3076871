"""What fitting the last layer gives on a small federation of drawn images, and what was tried with it on CIFAR-10
(results/readout)."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from docs.pages.chosen import told
from docs.pages.claims import named
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import IID
from fedskew.runs.results import Result
from fedskew.runs.verdict import BASELINE, MEASURE

_STILL = 1e-6
"""A learning rate below this leaves the model as it was drawn."""
Seeds = Mapping[int, float]


def by_cell(runs: Sequence[Result]) -> dict[str, dict[str, Seeds]]:
    """For each split and method the accuracy of each seed, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        name = f"`{run.short['algorithm']}`{', untrained features' if run.run['lr'] < _STILL else ''}"
        cell = found.setdefault(run.short["partition"], {}).setdefault(name, {})
        cell[run.seed] = 100 * run.summary[MEASURE]
    return {cell: dict(methods) for cell, methods in found.items()}


def tried(tries: Sequence[Result]) -> Iterator[str]:
    """Variants of the best method with a readout, with their accuracy on held-out examples, best first."""
    if not tries:
        return
    cells = sorted({(one.short["partition"], one.rounds) for one in tries})
    places = [f"{named(cell)}, {rounds} rounds" for cell, rounds in cells]
    yield (
        "What might close more was tried on held-out examples: other knobs of the fit and of the training, and other "
        f"methods before the fit ({'; '.join(places)}; one seed; accuracy on a tenth of the training examples, in "
        "percent)."
    )
    ordered = sorted(tries, key=lambda one: (one.short["partition"], -one.summary["validation_accuracy"]))
    rows = [
        [named(one.short["partition"]), told(one), f"{100 * one.summary['validation_accuracy']:.1f}"] for one in ordered
    ]
    yield "\n".join(as_markdown(["split", "method", "held out"], rows))


def table(runs: Sequence[Result]) -> str:
    """Accuracy of each method in each split with its spread, and the share of the gap that it closes: to FedAvg on IID
    data, and to itself on IID data."""
    found, base = by_cell(runs), f"`{BASELINE}`"
    skewed = [cell for cell in found if cell != IID]

    def mean(cell: str, method: str) -> float:
        return statistics.fmean(found[cell][method].values())

    def shown(cell: str, method: str) -> str:
        text = f"{mean(cell, method):.1f} ± {statistics.stdev(found[cell][method].values()):.1f}"
        if cell == IID or method == base:
            return text
        gain, floor = mean(cell, method) - mean(cell, base), mean(cell, base)
        shares = (100 * gain / (mean(IID, ceiling) - floor) for ceiling in (base, method))
        return f"{text} ({', '.join(f'{share:.0f} %' for share in shares)})"

    methods = sorted(found[IID], key=lambda method: (method != base, -mean(skewed[0], method)))
    rows = [[method, *(shown(cell, method) for cell in [*skewed, IID])] for method in methods]
    return "\n".join(as_markdown(["method", *(named(cell) for cell in skewed), "IID"], rows))
