"""What tables lack, as they are shown: missing methods and seeds in the length and arithmetic of their cell."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fedskew.paper.choice import Choice, chosen
from fedskew.paper.table import Table
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.verdict import BASELINE

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Extended:
    """Tables as an item whose runs are those that they still lack. Published runs count as done.

    Every method of the paper gets the first seed. Further seeds are for methods that have one: with `within`, only for
    those that differ from FedAvg, or from the highest mean of their cell, by at most that many points, and for FedAvg
    itself where one of them needs it. A method whose first seed ends with FedAvg's very loss gets none: it computes
    the same there, as FedNova does, but for rounding, if all clients have as many examples.
    """

    tables: Sequence[Table]
    within: float | None = None

    def runs(self, choice: Choice, results: Results) -> list[Run]:
        if choice.profile.tries:
            raise ValueError(f"profile {choice.profile.name} tries variants first; allowed to extend: other profiles")
        return [run for table in self.tables for run in self._lacking(table, choice, results)]

    def settled(self, choice: Choice, results: Results) -> bool:
        """Whether nothing is lacking: which seeds a method needs depends on the others' runs."""
        return not self.runs(choice, results)

    def _lacking(self, table: Table, choice: Choice, results: Results) -> Iterator[Run]:
        named = {*chosen("method", choice.methods, (*table.methods, *table.beyond)), BASELINE}
        everyone = table.rows(results, replace(choice, methods=()))
        for cell, group in groupby(everyone, lambda row: str(row["cell"])):
            rows = list(group)
            best = max(_gain(row) or 0.0 for row in rows)
            here = as_shown(rows, table.full_rounds(cell), choice)
            runs = {row["method"]: table.run(cell, row["method"], here) for row in rows}
            plain = _loss(results, runs[BASELINE])
            wanted = {
                row["method"]: range(choice.seeds if self._more(row, best) and _loss(results, run) != plain else 1)
                for row, run in zip(rows, runs.values(), strict=True)
                if row["method"] in named
            }
            wanted[BASELINE] = range(max(map(len, wanted.values())))
            for row in rows:
                have = row["ours"]["seeds"] if row["ours"] else ()
                lacking = (seed for seed in wanted.get(row["method"], ()) if seed not in have)
                yield from (runs[row["method"]].model_copy(update={"seed": seed}) for seed in lacking)

    def _more(self, row: Row, best: float) -> bool:
        """Whether a method should have more than one seed, by what it gained and the highest gain of its cell."""
        gain = _gain(row)
        return gain is not None and (self.within is None or min(abs(gain), best - gain) <= self.within)


def _gain(row: Row) -> float | None:
    """Points over FedAvg, over the seeds that both have."""
    gain = None if row["ours"] is None else row["ours"]["gain"]
    return None if gain is None else float(gain["mean"])


def _loss(results: Results, run: Run) -> float:
    """The test loss at the end of this very run; NaN, which equals nothing, if there is none."""
    same = [found for found in results.exactly(run.model_dump()) if found.precision == run.precision]
    return next((found.summary["loss"] for found in same if found.summary["loss"] is not None), math.nan)


def as_shown(rows: Sequence[Row], full: int, choice: Choice) -> Choice:
    """The choice in the length and arithmetic of a cell's rows."""
    shown = next((row["ours"] for row in rows if row["ours"]), None)
    if shown is None:
        return replace(choice, rounds=min(full, choice.rounds or full))
    return replace(choice, rounds=shown["rounds"], fields={**choice.fields, "precision": shown["precision"]})
