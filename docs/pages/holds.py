"""Which claims of the paper hold under which profile: who is first, who is above FedAvg, and the order of methods."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.pages.claims import by_profile, by_seed, on_common_seeds
from fedskew.core.spec import name_in
from fedskew.paper import TABLES
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import SEVEN
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Results
from fedskew.runs.verdict import VERDICTS, Difference

FEWEST = 3
"""Methods of the paper that a cell needs before their order says something."""


@dataclass(frozen=True)
class Cell:
    """A cell with FedAvg and FedLC, both of one length: FedLC's verdict against FedAvg, and what the paper's methods
    reached there in the seeds that all of them have, and in print."""

    data: str
    verdict: str
    runs: tuple[str, ...]
    ours: Mapping[str, float]
    printed: Mapping[str, float]

    @property
    def ordered(self) -> bool:
        return len(self.ours) >= FEWEST

    @property
    def first(self) -> bool:
        """Whether no other method of the paper has a higher mean than FedLC."""
        return max(self.ours, key=lambda method: self.ours[method]) == "fedlc"

    @property
    def agreement(self) -> float | None:
        """Kendall's tau between the order here and the printed one; None where too few have a printed figure."""
        both = [method for method in self.ours if method in self.printed]
        if len(both) < FEWEST:
            return None
        from scipy.stats import kendalltau  # slow to import, and only this page needs it

        here, there = ([values[method] for method in both] for values in (self.ours, self.printed))
        return float(kendalltau(here, there).statistic)


def cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    """The cells of a table under a profile that have both methods."""
    for cell in dict.fromkeys(row["cell"] for row in rows):
        at = {row["method"]: row for row in rows if row["cell"] == cell and row["ours"] and row["method"] in SEVEN}
        mine = at.get("fedlc")
        if mine is None or "fedavg" not in at or mine["ours"]["gain"] is None:
            continue
        alike = {m: row for m, row in at.items() if row["ours"]["rounds"] == mine["ours"]["rounds"]}
        ours = on_common_seeds({m: of for m, row in alike.items() if (of := by_seed(row["ours"]))})
        printed = {m: row["printed"]["mean"] for m, row in alike.items() if row["printed"]["mean"] is not None}
        if {"fedavg", "fedlc"} <= set(ours):
            data = name_in(mine["ours"]["dataset"])
            runs = (*at["fedavg"]["ours"]["hashes"], *mine["ours"]["hashes"])
            yield Cell(data, Difference(**mine["ours"]["gain"]).verdict, runs, ours, printed)


def section(results: Results) -> Iterator[str]:
    """A line for each profile and data set; nothing where nothing was run."""
    found: dict[str, dict[tuple[str, ...], Cell]] = {profile: {} for profile in PROFILES}
    for table in TABLES.values():
        for profile, rows in by_profile(table.name, results):
            for cell in cells(rows):
                found[profile.name].setdefault(cell.runs, cell)  # a cell of two tables counts once
    lines = []
    for name, there in found.items():
        for data in dict.fromkeys(cell.data for cell in there.values()):
            lines.append([f"`{name}`", data, *_counted([cell for cell in there.values() if cell.data == data])])
    if not lines:
        return
    yield "## Which claims of the paper hold"
    yield (
        "The paper has FedLC above FedAvg and first among its seven methods in every cell. A cell counts for the order "
        f"of methods where at least {FEWEST} of the seven were run for the same number of rounds. Kendall's tau "
        "compares that order with the printed one: 1 is the same order, -1 the reverse."
    )
    heads = ("profile", "data", "cells", "FedLC against FedAvg", "FedLC first", "Kendall's tau, mean (range)")
    yield "\n".join(as_markdown(heads, lines))


def _counted(found: Sequence[Cell]) -> list[str]:
    words = Counter(cell.verdict for cell in found)
    said = ", ".join(f"{word} in {words[word]}" for word in VERDICTS if words[word])
    ordered = [cell for cell in found if cell.ordered]
    first = f"{sum(cell.first for cell in ordered)} of {len(ordered)}" if ordered else "-"
    taus = [cell.agreement for cell in ordered if cell.agreement is not None]
    agreed = f"{statistics.fmean(taus):.2f} ({min(taus):.2f} to {max(taus):.2f})" if taus else "-"
    return [str(len(found)), said, first, agreed]
