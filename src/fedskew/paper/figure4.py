"""Figure 4: who holds what, on five clients."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.paper.choice import Choice, standing_in
from fedskew.paper.figures import figure4
from fedskew.paper.table import EVERYTHING, NOTHING
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.simulation.plan import build_federation, describe_partition

_PANELS = {"Q(4)": "shards:4", "D(0.5)": "dirichlet:0.5"}


class Figure4:
    name, title = "figure4", "Label counts of five clients"

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """None: nothing is trained."""
        return []

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """A partition card for each panel."""
        return [{"panel": panel, "card": self._card(split, choice)} for panel, split in _PANELS.items()]

    def _card(self, split: str, choice: Choice) -> dict[str, Any]:
        fields = {"dataset": "cifar10", "partition": split, "clients": 5, "model": "cnn", **choice.fields}
        run = Run(**(standing_in(fields) if choice.stand_in else fields))
        return describe_partition(run, build_federation(run))

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        return figure4(path, {row["panel"]: row["card"] for row in rows}, title)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"{row['panel']:7} client {k}: {counts}" for row in rows for k, counts in enumerate(row["card"]["counts"])
        ]


FIGURE = Figure4()
runs, rows = FIGURE.runs, FIGURE.rows
