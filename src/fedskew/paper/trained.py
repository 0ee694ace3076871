"""Figures that are measured on the global model of one trained run: FedAvg's, on a cell of table 1."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.diagnostics.observing import from_folder
from fedskew.paper.choice import Choice, chosen
from fedskew.paper.table import EVERYTHING, NOTHING
from fedskew.paper.tables import TABLES
from fedskew.runs.results import Results
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.session import finished_records
from fedskew.simulation.simulation import Simulation, fingerprint

CELL = "cifar10/dirichlet:0.1"
METHODS = ("fedavg", "fedlc")
Measured = dict[str, Any]


@dataclass(frozen=True)
class TrainedFigure:
    """`look` measures a simulation that stands at the end of its run; `key` names the measurement in the run's folder;
    `picture` draws it; `words` says it in lines."""

    name: str
    title: str
    key: str
    look: Callable[[Simulation], Measured]
    picture: Callable[..., list[Path]]
    words: Callable[[Measured], list[str]]

    def runs(self, choice: Choice = EVERYTHING, results: Results = NOTHING) -> list[Run]:
        """One run, whatever the number of seeds."""
        return [TABLES["table1"].run(_cell(choice), "fedavg", choice)]

    def measure(self, store: Store, choice: Choice) -> None:
        """Measure the model of the run's last round, unless that has been done, and keep it with the run."""
        for run in self.runs(choice):
            folder = store.folder(run.hash)
            ready = folder.exists() and folder.checkpoint.exists() and bool(finished_records(run, folder))
            if not ready or self.key in folder.measured(run.rounds):
                continue
            simulation = from_folder(folder, run.device)
            if simulation.round != run.rounds:
                raise ValueError(
                    f"the model of round {run.rounds} is gone: run {run.hash} went on to {simulation.round}; "
                    "do it in another store (--runs FOLDER), or leave out --rounds"
                )
            folder.write_measured(self.key, run.rounds, self.look(simulation))
            folder.write_measured(_where(self.key), run.rounds, fingerprint(simulation)["device"])

    def rows(self, results: Results, choice: Choice = EVERYTHING) -> list[dict[str, Any]]:
        """The measurement on the longest run that has one."""
        full = TABLES["table1"].full_rounds(_cell(choice))
        asked = [run.model_dump() for run in self.runs(choice)]
        found = [r for run in asked for r in results.answering(run) if self.key in r.measured and r.rounds <= full]
        best = max(found, key=lambda result: result.rounds, default=None)
        if best is None:
            return []
        about = {"hash": best.hash, "rounds": best.rounds, "precision": best.precision}
        about["measured_on"] = best.measured.get(_where(self.key))
        return [{**about, "shortened": best.rounds < full, "measured": best.measured[self.key]}]

    def draw(self, rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> list[Path]:
        if not rows:
            raise ValueError(f"{self.name} has not been measured yet; `fedskew paper run {self.name}` does it")
        row = rows[0]
        note = f"shortened: the model is of round {row['rounds']}" if row["shortened"] else None
        return self.picture(path, row["measured"], note=note)

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        short = [f"shortened: the model is of round {row['rounds']}" for row in rows if row["shortened"]]
        return [*(line for row in rows for line in self.words(row["measured"])), *short]


def _where(key: str) -> str:
    """The name under which a folder keeps the device of a measurement."""
    return f"{key}_device"


def _cell(choice: Choice) -> str:
    """The first cell asked for."""
    return chosen("cell", choice.cells or (CELL,), TABLES["table1"].cells)[0]
