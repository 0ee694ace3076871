"""Figure 3: two clients, where their own optima pull the mean. The paper's is a sketch; this is a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.paper.choice import Choice
from fedskew.paper.figures import figure3
from fedskew.paper.table import EVERYTHING, NOTHING
from fedskew.paper.two_clients import two_clients
from fedskew.runs.results import Results
from fedskew.runs.run import Run


class Figure3:
    name, title = "figure3", "Two clients with skewed labels"

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """None: two clients in the plane take seconds."""
        return []

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        return [two_clients()]

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        return figure3(path, rows[0])

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        said = [f"{method['algorithm']:8} pooled loss {method['pooled_loss']:.3f}" for method in rows[0]["methods"]]
        return [*said, f"after {rows[0]['rounds']} rounds; the best possible is {rows[0]['pooled_loss']:.3f}"]


FIGURE = Figure3()
runs, rows = FIGURE.runs, FIGURE.rows
