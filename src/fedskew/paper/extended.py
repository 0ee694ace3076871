"""What tables lack, as they are shown: missing methods and seeds in the length and arithmetic of their cell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fedskew.paper.choice import Choice
from fedskew.paper.table import Table
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.verdict import BASELINE

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Extended:
    """Tables as an item whose runs are those that they still lack. Published runs count as done.

    Every method of the paper gets the first seed. Further seeds are for methods that have one: with `within`, only for
    those that differ from FedAvg by at most that many points, and for FedAvg itself where one of them needs it. A
    method that equals FedAvg exactly computes the same there (FedNova, if all clients have as many examples): it gets
    none.
    """

    tables: Sequence[Table]
    within: float | None = None

    def runs(self, choice: Choice, results: Results) -> list[Run]:
        if choice.profile.tries:
            raise ValueError(f"profile {choice.profile.name} tries variants first; allowed to extend: other profiles")
        if choice.methods and BASELINE not in choice.methods:
            choice = replace(choice, methods=(BASELINE, *choice.methods))
        return [run for table in self.tables for run in self._lacking(table, choice, results)]

    def _lacking(self, table: Table, choice: Choice, results: Results) -> Iterator[Run]:
        for cell, group in groupby(table.rows(results, choice), lambda row: str(row["cell"])):
            rows = list(group)
            wanted = {row["method"]: self._seeds(row, choice.seeds) for row in rows}
            wanted[BASELINE] = range(max(map(len, wanted.values())))
            here = as_shown(rows, table.full_rounds(cell), choice)
            for row in rows:
                run = table.run(cell, row["method"], here)
                have = row["ours"]["seeds"] if row["ours"] else ()
                yield from (run.model_copy(update={"seed": s}) for s in wanted[row["method"]] if s not in have)

    def _seeds(self, row: Row, seeds: int) -> range:
        """The seeds that a method should have in a cell, by what it has."""
        gain = None if row["ours"] is None else row["ours"]["gain"]
        more = gain is not None and gain["mean"] != 0 and (self.within is None or abs(gain["mean"]) <= self.within)
        return range(seeds if more else 1)


def as_shown(rows: Sequence[Row], full: int, choice: Choice) -> Choice:
    """The choice in the length and arithmetic of a cell's rows."""
    shown = next((row["ours"] for row in rows if row["ours"]), None)
    if shown is None:
        return replace(choice, rounds=min(full, choice.rounds or full))
    return replace(choice, rounds=shown["rounds"], fields={**choice.fields, "precision": shown["precision"]})
