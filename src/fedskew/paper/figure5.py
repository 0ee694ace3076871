"""Figure 5: accuracy curves of FedLC and FedRS on the ImageNet subset, 40 clients."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedskew.paper.choice import Choice
from fedskew.paper.figures import figure5
from fedskew.paper.table import EVERYTHING, NOTHING, Table, by_length, in_one_arithmetic
from fedskew.runs.results import Results
from fedskew.runs.run import Run


class Figure5:
    name, title = "figure5", "ImageNet subset, 40 clients: accuracy curves"
    table = Table(
        name="figure5",
        title=title,
        cells={
            f"imagenet12/{split}": {"dataset": "imagenet12", "partition": split}
            for split in ("shards:2", "shards:4", "dirichlet:0.1", "dirichlet:0.3")
        },
        methods=("fedrs", "fedlc"),
        fields={"rounds": 400, "clients": 40, "model": "resnet18"},
    )

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        return self.table.runs(choice, results)

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """The curves of every seed, of the longest runs there are, in one arithmetic."""
        return in_one_arithmetic(results, choice, partial(self._rows, choice))

    def _rows(self, choice: Choice, results: Results) -> list[dict[str, Any]]:
        found = []
        for cell, method in self.table.pairs(choice):
            groups = by_length(results.answering(self.table.run(cell, method, choice).model_dump()))
            lengths = [n for n in groups if n <= self.table.full_rounds(cell) and choice.rounds in (None, n)]
            for rounds in sorted(lengths)[-1:]:
                about = {"cell": cell, "method": method, "rounds": rounds, "precision": groups[rounds][0].precision}
                curves, hashes = [r.curve for r in groups[rounds]], [r.hash for r in groups[rounds]]
                last_ten = [r.summary["accuracy_last10"] for r in groups[rounds]]
                found.append({**about, "curves": curves, "last_ten": last_ten, "hashes": hashes})
        return found

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        if not rows:
            raise ValueError("figure5 has no runs yet; `fedskew paper run figure5` does them")
        cells: dict[str, dict[str, Any]] = {}
        for row in rows:
            seeds = [[{"round": r, "accuracy": accuracy} for r, accuracy in curve] for curve in row["curves"]]
            cells.setdefault(row["cell"], {})[row["method"]] = seeds
        shortest = min(row["rounds"] for row in rows)
        return figure5(path, cells, title, f"shortened: {shortest} of 400 rounds" if shortest < 400 else None)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"{row['cell']:25} {row['method']:6} {100 * curve[-1][1]:.2f} % after {row['rounds']} rounds, the last ten "
            f"{100 * mean:.2f} %" + (", shortened" if row["rounds"] < self.table.full_rounds(row["cell"]) else "")
            for row in rows
            for curve, mean in zip(row["curves"], row["last_ten"], strict=True)
        ]


FIGURE = Figure5()
runs, rows = FIGURE.runs, FIGURE.rows
