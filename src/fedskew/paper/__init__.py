"""The tables and figures of Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration"."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedskew.core import spec
from fedskew.paper.choice import Choice
from fedskew.paper.run_figures import FIGURE1, FIGURE5, Figure3, Figure4
from fedskew.paper.table import Table
from fedskew.paper.tables import TABLES
from fedskew.paper.trained import TRAINED
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.store import Store


class Figure(Protocol):
    """A figure: the runs it needs and what it shows. `draw` writes files, `lines` describes it in words."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def runs(self, choice: Choice = ..., results: Results = ...) -> list[Run]: ...
    def rows(self, results: Results, choice: Choice = ...) -> list[dict[str, Any]]: ...
    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]: ...
    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]: ...


_FIGURES: tuple[Figure, ...] = (FIGURE1, Figure3(), Figure4(), FIGURE5, *TRAINED)
FIGURES: dict[str, Figure] = {figure.name: figure for figure in sorted(_FIGURES, key=lambda figure: figure.name)}
ITEMS: dict[str, Table | Figure] = {**TABLES, **FIGURES}


class Everything:
    """All tables and figures as one item: runs that several of them need are done once."""

    def runs(self, choice: Choice, results: Results) -> list[Run]:
        return [run for item in ITEMS.values() for run in item.runs(choice, results)]

    def measure(self, store: Store, choice: Choice) -> None:
        for item in ITEMS.values():
            if hasattr(item, "measure"):
                item.measure(store, choice)

    def settled(self, choice: Choice, results: Results) -> bool:
        return all(item.settled(choice, results) for item in ITEMS.values() if hasattr(item, "settled"))


def mapped(cell: str) -> Table:
    """The table whose cell a map can be drawn around: those with a partition and the paper's CNN."""
    tables = {name: table for table in (TABLES["table1"], TABLES["table2"]) for name in table.cells}
    if cell not in tables:
        raise ValueError(spec.unknown("cell", cell, tables))
    return tables[cell]


__all__ = ["FIGURES", "ITEMS", "TABLES", "Everything", "Figure", "mapped"]
