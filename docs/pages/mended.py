"""Where the distance to IID data lies: what global models reach with a part of them mended (results/repairs)."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.pages.chosen import told
from docs.pages.claims import named, span
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import IID
from fedskew.runs.results import Result

PARTS = ("as_is", "norms", "head")
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Mended:
    """The models of one method in a cell: mean accuracies over their seeds in percent."""

    cell: str
    method: str
    seeds: int
    accuracy: Mapping[str, float]

    def change(self, part: str) -> float:
        return self.accuracy[part] - self.accuracy["as_is"]


def mended(lines: Sequence[Line], runs: Sequence[Result]) -> list[Mended]:
    """By cell and method, the most skewed cell first; a method whose knob is not the default carries it."""
    known = {(run.hash, run.rounds): run for run in runs}
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if (line["hash"], line["rounds"]) not in known:
            raise ValueError(f"a model of run {line['hash']} was mended, but no results have that run")
        run = known[line["hash"], line["rounds"]]
        groups.setdefault((run.short["partition"], told(run)), []).append(line["repairs"])
    found = [
        Mended(cell, method, len(each), {part: 100 * statistics.fmean(one[part] for one in each) for part in PARTS})
        for (cell, method), each in groups.items()
    ]
    return sorted(found, key=lambda one: (one.cell == IID, one.cell, -one.accuracy["as_is"]))


def _fit(lines: Sequence[Line]) -> str:
    """How the last layer was fitted, as the lines say; they must agree."""
    (fit,) = {line["fit"] for line in lines}
    return str(fit)


def section(lines: Sequence[Line], runs: Sequence[Result]) -> Iterator[str]:
    """The table, and what it says; nothing if nothing was mended."""
    found = mended(lines, runs)
    if not found:
        return
    yield "## Why the rest of the gap is not closed"
    yield (
        "What would a global model reach if a part of it were mended with everybody's training examples? This shows "
        "where the distance to IID data lies. Test accuracy after the last round in percent: as the model is, with "
        "batch-norm statistics of all examples, and with the last layer fitted to the features of all examples "
        f"({_fit(lines)}, in one place). The method `refit` in the tables above fits it in a federation, from the "
        "trained layer and with a pull towards it, so its figures differ. Other rates are those of the next section."
    )
    rows = [
        [named(one.cell), one.method, str(one.seeds), *(f"{one.accuracy[part]:.1f}" for part in PARTS)] for one in found
    ]
    yield "\n".join(as_markdown(["split", "method", "seeds", "as it is", "statistics", "last layer"], rows))
    yield " ".join(_sentences(found))


def _sentences(found: Sequence[Mended]) -> Iterator[str]:
    skewed, level = ([one for one in found if (one.cell == IID) == iid] for iid in (False, True))
    if not (skewed and level):
        return
    norms = [one.change("norms") for one in skewed]
    yield (
        f"Statistics of all examples change skewed models by {span(norms, '+.1f')} points, "
        f"{statistics.fmean(norms):+.1f} on average: {_of_norms(norms)}."
    )
    whole = statistics.fmean(one.accuracy["as_is"] for one in level)
    told = []
    for cell in dict.fromkeys(one.cell for one in skewed):
        here = [one for one in skewed if one.cell == cell]
        best = max(here, key=lambda one: one.accuracy["head"])
        share = sum(one.change("head") for one in here) / sum(whole - one.accuracy["as_is"] for one in here)
        ends = [best.accuracy[part] for part in ("as_is", "head")]
        told.append(f"{100 * share:.0f} % at {named(cell)} (the best from {ends[0]:.1f} to {ends[1]:.1f})")
    reached = span([one.accuracy["as_is"] for one in level], ".1f")
    lost = [one.change("head") for one in level]
    absent = "" if any(one.method == "`fedlc`" for one in skewed) else "; FedLC alone is not among them"
    yield (
        f"Of the distance to the models of IID data, which reach {reached}, a fitted last layer closes, for the "
        f"methods of this table, which differ by split{absent}: {', '.join(told)}. What is left lies in the features. "
        "On IID data itself, fitting the last layer changes accuracy by "
        f"{span(lost, '+.1f')} points, {statistics.fmean(lost):+.1f} on average."
    )


def _of_norms(changes: Sequence[float]) -> str:
    return "they are not what is missing" if statistics.fmean(changes) <= 0 else "they are a part of what is missing"
