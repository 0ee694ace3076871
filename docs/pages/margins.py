"""FedLC's tau tried on held-out examples of other data sets than the one that its default was chosen on."""

from collections.abc import Iterator, Mapping, Sequence

from docs.pages.claims import listed, placed
from fedskew.core.spec import name_in
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result
from fedskew.runs.verdict import BASELINE

DEFAULT = "fedlc"


def by_cell(tries: Sequence[Result]) -> dict[str, dict[str, float]]:
    """For each data set and split the accuracy of each variant on held-out examples, in percent."""
    found: dict[str, dict[str, float]] = {}
    for one in sorted(tries, key=lambda each: (each.run["dataset"], each.run["partition"])):
        at = found.setdefault(f"{name_in(one.run['dataset'])}/{one.short['partition']}", {})
        if at.setdefault(one.short["algorithm"], value := 100 * one.summary["validation_accuracy"]) != value:
            raise ValueError(f"{one.hash}: there is another try of {one.short['algorithm']}; the table has one of each")
    return found


def section(tries: Sequence[Result]) -> Iterator[str]:
    """The table, and how far the default is from the best; nothing if nothing was tried."""
    found = by_cell(tries)
    if not found:
        return
    yield "## FedLC's tau on other data sets"
    resolved = {one.run["algorithm"] for one in tries if one.short["algorithm"] == DEFAULT}
    (share,) = {one.run["validation"] for one in tries}
    yield (
        f"The default, {listed(f'`{spec}`' for spec in resolved)}, was chosen on CIFAR-10. These are its neighbours on "
        f"other data, profile `usual`, {listed(sorted({str(one.rounds) for one in tries}))} rounds, one seed: accuracy "
        f"on held-out training examples ({100 * share:g} %), in percent; FedLC's best is bold."
    )
    methods = sorted({method for at in found.values() for method in at}, key=lambda m: (m != BASELINE, m != DEFAULT, m))
    rows = [[placed(cell), *(_shown(at, method) for method in methods)] for cell, at in found.items()]
    yield "\n".join(as_markdown(["data", *(f"`{method}`" for method in methods)], rows))
    behind = [f"{at[_best(at)] - at[DEFAULT]:.2f} points at {placed(cell)}" for cell, at in found.items()]
    yield f"The default is behind the best of FedLC's variants by {listed(behind)}."


def _best(at: Mapping[str, float]) -> str:
    return max((method for method in at if method != BASELINE), key=lambda method: at[method])


def _shown(at: Mapping[str, float], method: str) -> str:
    if method not in at:
        return "-"
    return f"**{at[method]:.2f}**" if method == _best(at) else f"{at[method]:.2f}"
