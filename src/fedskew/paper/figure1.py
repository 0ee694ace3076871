"""Figure 1: FedAvg's accuracy against the degree of skew, and without any."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedskew.paper.choice import Choice
from fedskew.paper.figures import figure1
from fedskew.paper.table import EVERYTHING, NOTHING, Table, printed
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.summary import percent

_SPLITS = {
    "iid": ("iid",),
    "Q(alpha)": ("shards:2", "shards:4", "shards:6", "shards:8"),
    "D(beta)": ("dirichlet:0.05", "dirichlet:0.1", "dirichlet:0.2", "dirichlet:0.3", "dirichlet:0.5"),
}
_GROUPS = {split: group for group, splits in _SPLITS.items() for split in splits}


class Figure1:
    name, title = "figure1", "FedAvg under label skew, CIFAR-10"
    table = Table(
        name="figure1",
        title=title,
        cells={f"cifar10/{split}": {"dataset": "cifar10", "partition": split} for split in _GROUPS},
        methods=("fedavg",),
        fields={"rounds": 400, "clients": 20, "model": "cnn"},
    )

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        return self.table.runs(choice, results)

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """Accuracy as a share of one, and the drop that the paper prints, where it does; all of one length, the one
        that most cells have."""
        rows = [row for row in self.table.rows(results, choice) if row["ours"]]
        lengths = [row["ours"]["rounds"] for row in rows]
        if len(set(lengths)) > 1:
            known = {n: self.table.rows(results, replace(choice, rounds=n)) for n in set(lengths)}
            rows = max(known.values(), key=lambda found: sum(row["ours"] is not None for row in found))
        return [self._row(row["cell"], row["ours"], choice) for row in rows if row["ours"] and row["ours"]["seeds"]]

    def _row(self, cell: str, ours: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
        split = cell.partition("/")[2]
        drop, _ = (None, None) if choice.stand_in else printed("figure1").get(split, (None, None))
        mean, std = (None if ours[name] is None else ours[name] / 100 for name in ("mean", "std"))
        return {
            "group": _GROUPS[split],
            "label": split,
            "accuracy": {"mean": mean, "std": std},
            "printed_drop": drop,
            **{name: ours[name] for name in ("rounds", "shortened", "seeds", "precision", "hashes")},
        }

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        if not rows:
            raise ValueError("figure1 has no runs yet; `fedskew paper run figure1` does them")
        if not any(row["group"] == "iid" for row in rows):
            raise ValueError(
                "figure1 has no run without skew yet; `fedskew paper run figure1 --cells cifar10/iid` does it"
            )
        note = f"shortened: {rows[0]['rounds']} of 400 rounds" if rows[0]["shortened"] else None
        return figure1(path, rows, title, note)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        iid = next((row["accuracy"]["mean"] for row in rows if row["group"] == "iid"), None)
        return [self._line(row, iid) for row in rows]

    def _line(self, row: Mapping[str, Any], iid: float | None) -> str:
        mean = row["accuracy"]["mean"]
        drop = f", a drop of {100 * (iid - mean):.2f} points" if iid and mean and row["group"] != "iid" else ""
        printed = f" (the paper prints {row['printed_drop']})" if drop and row["printed_drop"] else ""
        short = f", shortened to {row['rounds']} rounds" if row["shortened"] else ""
        return f"{row['label']:15} {percent(mean)} %{drop}{printed}{short}"


FIGURE = Figure1()
runs, rows = FIGURE.runs, FIGURE.rows
