"""Which claims of the paper hold under which profile: who is first, who is above FedAvg, and the order of methods."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.pages.claims import by_profile, by_seed, common_seeds, data_and_table, on_common_seeds, rank, span
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
    reached there with each seed, and in print."""

    dataset: str
    rounds: int
    verdict: str
    runs: tuple[str, ...]
    known: Mapping[str, Mapping[int, float]]
    printed: Mapping[str, float]

    @property
    def ours(self) -> dict[str, float]:
        """What each method reached with the seeds that all of them have."""
        return on_common_seeds(self.known)

    @property
    def seeds(self) -> int:
        """How many seeds all of them have."""
        return len(common_seeds(self.known))

    @property
    def ordered(self) -> bool:
        return len(self.ours) >= FEWEST

    @property
    def first(self) -> bool:
        return rank(self.known, "fedlc") == 1

    @property
    def agreement(self) -> float | None:
        """Kendall's tau between the order here and the printed one; None where too few have a printed figure."""
        both = [method for method in self.ours if method in self.printed]
        if len(both) < FEWEST:
            return None
        from scipy.stats import kendalltau  # slow to import, and only this page needs it

        here, there = ([values[method] for method in both] for values in (self.ours, self.printed))
        return float(kendalltau(here, there, variant="b").statistic)


def cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    """The cells of a table under a profile that have both methods."""
    for cell in dict.fromkeys(row["cell"] for row in rows):
        at = {row["method"]: row for row in rows if row["cell"] == cell and row["ours"] and row["method"] in SEVEN}
        mine = at.get("fedlc")
        if mine is None or "fedavg" not in at or mine["ours"]["gain"] is None:
            continue
        alike = {m: row for m, row in at.items() if row["ours"]["rounds"] == mine["ours"]["rounds"]}
        known = {m: of for m, row in alike.items() if (of := by_seed(row["ours"]))}
        printed = {m: row["printed"]["mean"] for m, row in alike.items() if row["printed"]["mean"] is not None}
        if {"fedavg", "fedlc"} <= set(on_common_seeds(known)):
            runs = (*at["fedavg"]["ours"]["hashes"], *mine["ours"]["hashes"])
            dataset, rounds, gain = (mine["ours"][name] for name in ("dataset", "rounds", "gain"))
            yield Cell(dataset, rounds, Difference(**gain).verdict, runs, known, printed)


def section(results: Results) -> Iterator[str]:
    """A line for each profile, data set, and table that varies something else; nothing where nothing was run."""
    found: dict[tuple[str, str], list[Cell]] = {}
    told = set[tuple[str, ...]]()
    for table in TABLES.values():
        for profile, rows in by_profile(table.name, results):
            for cell in cells(rows):
                if cell.runs not in told:  # a cell of two tables counts once
                    told.add(cell.runs)
                    found.setdefault((profile.name, data_and_table(table, cell.dataset)), []).append(cell)
    lines = [
        [f"`{name}`", where, *_counted(there)]
        for profile in PROFILES
        for (name, where), there in found.items()
        if name == profile
    ]
    if not lines:
        return
    yield "## Which claims of the paper hold"
    yield (
        "The paper has FedLC above FedAvg in every cell, and first of its seven methods wherever it prints them; only "
        "combinations with FedLC are ahead of it, in table 7. FedLC is first here if no other of the seven that we ran "
        "is ahead of it over the seeds that both have, by however little (a method that diverged with a seed is left "
        "out); the table says of how many methods, and after how many rounds. Kendall's tau (tau-b) compares the order "
        "of the methods with the printed one: 1 is the same order, -1 the reverse. It uses the seeds that all methods "
        "of a cell have. **Often that is one seed**, which says little of a single cell; the table says how many. Both "
        f"count cells where at least {FEWEST} of the seven were run for the same number of rounds; Kendall's tau also "
        f"needs {FEWEST} printed figures, and table 7 has two of the seven."
    )
    heads = ["profile", "data", "cells", "rounds", "FedLC against FedAvg", "FedLC first", "methods"]
    yield "\n".join(as_markdown([*heads, "Kendall's tau, mean (range)", "seeds"], lines))


def _counted(found: Sequence[Cell]) -> list[str]:
    words = Counter(cell.verdict for cell in found)
    said = ", ".join(f"{word} in {words[word]}" for word in VERDICTS if words[word])
    ordered = [cell for cell in found if cell.ordered]
    first = f"{sum(cell.first for cell in ordered)} of {len(ordered)}" if ordered else "-"
    taus = [cell.agreement for cell in ordered if cell.agreement is not None]
    agreed = f"{statistics.fmean(taus):.2f} ({min(taus):.2f} to {max(taus):.2f})" if taus else "-"
    methods, common = (
        span(numbers, "d") if ordered else "-"
        for numbers in ([len(cell.known) for cell in ordered], [cell.seeds for cell in ordered])
    )
    return [str(len(found)), span([cell.rounds for cell in found], "d"), said, first, methods, agreed, common]
