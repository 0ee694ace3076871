"""Figures 1, 3, 4 and 5, which need no model of a finished run: FedAvg under skew, two clients, counts, curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedskew.paper.choice import Choice, standing_in
from fedskew.paper.figures import figure1, figure3, figure4, figure5
from fedskew.paper.table import EVERYTHING, NOTHING, Table, cells_of, in_one_arithmetic, longest, printed
from fedskew.paper.tables import TABLES
from fedskew.paper.two_clients import two_clients
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.summary import mean_words, percent
from fedskew.simulation.plan import build_federation, describe_partition

_SPLITS = {
    "iid": ("iid",),
    "Q(alpha)": ("shards:2", "shards:4", "shards:6", "shards:8"),
    "D(beta)": ("dirichlet:0.05", "dirichlet:0.1", "dirichlet:0.2", "dirichlet:0.3", "dirichlet:0.5"),
}
_GROUPS = {split: group for group, splits in _SPLITS.items() for split in splits}
_PANELS = {"Q(4)": "shards:4", "D(0.5)": "dirichlet:0.5"}


class Untrained:
    """A figure without runs: what it shows takes seconds."""

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        return []


class _SkewFigure(Table):
    """FedAvg's accuracy against the degree of skew, and without any."""

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """Accuracy as a fraction, and the drop that the paper prints; all of the one length that most cells have."""
        rows = [row for row in super().rows(results, choice) if row["ours"]]
        lengths = [row["ours"]["rounds"] for row in rows]
        if len(set(lengths)) > 1:
            known = [super(_SkewFigure, self).rows(results, replace(choice, rounds=n)) for n in set(lengths)]
            rows = max(known, key=lambda found: sum(row["ours"] is not None for row in found))
        return [self._point(row["cell"], row["ours"], choice) for row in rows if row["ours"] and row["ours"]["seeds"]]

    def _point(self, cell: str, ours: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
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
            raise ValueError("figure1 has no runs yet; `fedskew paper run figure1` runs them")
        if not any(row["group"] == "iid" for row in rows):
            raise ValueError(
                "figure1 has no run without skew yet; `fedskew paper run figure1 --cells cifar10/iid` runs it"
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


class Figure3(Untrained):
    """Two clients, where their own optima pull the mean. The paper's is a sketch; this is a run."""

    name, title = "figure3", "Two clients with skewed labels"

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        return [two_clients()]

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        return figure3(path, rows[0])

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        said = [f"{method['algorithm']:8} pooled loss {method['pooled_loss']:.3f}" for method in rows[0]["methods"]]
        return [*said, f"after {rows[0]['rounds']} rounds; the best possible is {rows[0]['pooled_loss']:.3f}"]


class Figure4(Untrained):
    """The label counts of five clients."""

    name, title = "figure4", "Label counts of five clients"

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


class _CurveFigure(Table):
    """Accuracy curves of FedLC and FedRS on the ImageNet subset."""

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """The curves of every seed, from the longest existing runs, in one arithmetic."""
        return in_one_arithmetic(results, choice, partial(self._rows, choice))

    def _rows(self, choice: Choice, results: Results) -> list[dict[str, Any]]:
        found = []
        for cell, method in self.pairs(choice):
            known = results.answering(self.run(cell, method, choice).model_dump())
            if group := longest(known, self.full_rounds(cell), choice.rounds):
                about = {"cell": cell, "method": method, "rounds": group[0].rounds, "precision": group[0].precision}
                curves, hashes = [r.curve for r in group], [r.hash for r in group]
                last_ten = [r.summary["accuracy_last10"] for r in group]
                found.append({**about, "curves": curves, "last_ten": last_ten, "hashes": hashes})
        return found

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        if not rows:
            raise ValueError("figure5 has no runs yet; `fedskew paper run figure5` runs them")
        cells: dict[str, dict[str, Any]] = {}
        for row in rows:
            seeds = [[{"round": r, "accuracy": accuracy} for r, accuracy in curve] for curve in row["curves"]]
            cells.setdefault(row["cell"], {})[row["method"]] = seeds
        shortest = min(row["rounds"] for row in rows)
        return figure5(path, cells, title, f"shortened: {shortest} of 400 rounds" if shortest < 400 else None)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"{row['cell']:25} {row['method']:6} {100 * curve[-1][1]:.2f} % after {row['rounds']} rounds, "
            f"{mean_words([row['rounds']])} {100 * mean:.2f} %"
            + (", shortened" if row["rounds"] < self.full_rounds(row["cell"]) else "")
            for row in rows
            for curve, mean in zip(row["curves"], row["last_ten"], strict=True)
        ]


FIGURE1 = _SkewFigure(
    name="figure1",
    title="FedAvg under label skew, CIFAR-10",
    cells=cells_of(["cifar10"], _GROUPS),
    methods=("fedavg",),
    fields={"rounds": 400, "clients": 20, "model": "cnn"},
)
FIGURE5 = _CurveFigure(
    name="figure5",
    title="ImageNet subset, 40 clients: accuracy curves",
    cells=TABLES["table3"].cells,
    methods=("fedrs", "fedlc"),
    fields={"rounds": 400, "clients": 40, "model": "resnet18"},
)
