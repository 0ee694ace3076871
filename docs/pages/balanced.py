"""Balanced accuracy, where the classes of a test set are not equally frequent."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.pages.claims import by_profile, placed
from fedskew.paper.table import by_length
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import BASELINE, Difference, paired

TABLE, METHODS = "table1", ("fedlc", "fedla")
MEASURES = {"accuracy": "accuracy", "balanced": "balanced_accuracy"}


def section(results: Results) -> Iterator[str]:
    """What FedLC and logit adjustment gain in the last round by both measures; nothing if these are always equal."""
    lines = list[list[str]]()
    for profile, rows in by_profile(TABLE, results):
        found = {key: {m: gains(results, rows, m, key) for m in METHODS} for key in MEASURES.values()}
        for cell in dict.fromkeys(cell for at in found.values() for of in at.values() for cell in of):
            shown = [_shown(found[key][method].get(cell)) for method in METHODS for key in MEASURES.values()]
            lines.append([placed(cell), f"`{profile.name}`", *shown])
    if not lines:
        return
    yield "## Where classes are not equally frequent"
    yield (
        "Calibration aims at balanced accuracy, the mean over classes. On most data sets that is the accuracy; these "
        "test sets have more examples of some classes than of others. What is gained over FedAvg there, by both "
        "measures, in points of the last round (the mean of the last ten is kept of accuracy alone); verdicts by the "
        "rule below. [Table 4](tables/table4.md) has balanced accuracies of Synthetic, where both measures put both "
        "methods below FedAvg."
    )
    heads = [f"`{method}`, {measure}" for method in METHODS for measure in MEASURES]
    yield "\n".join(as_markdown(["data", "profile", *heads], lines))


def gains(results: Results, rows: Sequence[Mapping[str, Any]], method: str, key: str) -> dict[str, Difference]:
    """A method minus FedAvg by a measure of the last round, in every cell whose classes are not equally frequent."""
    found = {}
    for cell in dict.fromkeys(row["cell"] for row in rows):
        runs = {row["method"]: _runs(row["ours"], results) for row in rows if row["cell"] == cell}
        mine, base = (
            {run.seed: None if run.diverged else 100 * run.summary[key] for run in runs.get(name, ())}
            for name in (method, BASELINE)
        )
        if _unequal(runs.get(BASELINE, ())) and (gain := paired(mine, base)):
            found[cell] = gain
    return found


def _runs(ours: Mapping[str, Any] | None, results: Results) -> Sequence[Result]:
    """The runs behind a figure."""
    if ours is None:
        return ()
    return by_length([result for result in results if result.hash in ours["hashes"]])[ours["rounds"]]


def _unequal(runs: Sequence[Result]) -> bool:
    """Whether the two measures differ, so that classes are not equally frequent."""
    finished = [run.summary for run in runs if not run.diverged]
    return any(abs(summary["accuracy"] - summary["balanced_accuracy"]) > 1e-9 for summary in finished)


def _shown(gain: Difference | None) -> str:
    """`+1.34 [+0.51, +2.17] above`; without an interval where fewer than three seeds decide nothing."""
    if gain is None:
        return "-"
    return f"{gain.mean:+.2f}" if gain.half is None else f"{gain.mean:+.2f} {gain.interval} {gain.verdict}"
