"""A run for Python programs: its records, round after round, and a summary of the rounds so far."""

import atexit
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from fedskew.api.trained import TrainedModel, trained
from fedskew.core.checks import check_choice, check_number
from fedskew.core.round import Server
from fedskew.data import facts
from fedskew.progress import round_progress
from fedskew.report.comparison import FinishedRun, csv_text, latex, markdown, method_rows
from fedskew.report.figures import Series, curve_figure, draw_method_curves
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.export import describe_model
from fedskew.runs.measures import first_round
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.runs.summary import summarise
from fedskew.runs.verdict import BASELINE
from fedskew.simulation import Probe, RoundRecord
from fedskew.simulation import simulate as rounds_of
from fedskew.simulation.traffic import BytesSent, bytes_sent

Style = Literal["markdown", "latex", "csv"]
_open = weakref.WeakSet["Simulated"]()
"""What a program may leave before its end."""


class Simulated(Iterator[RoundRecord]):
    """The records of one run, computed on demand; `result()` computes the rest.

    Everything else describes the rounds so far; after `for record in simulated`, the whole run.
    """

    def __init__(self, run: Run, coming: Iterator[RoundRecord], store: Store | None = None) -> None:
        self.run, self.store = run, store
        self.records: list[RoundRecord] = []
        self._coming = coming
        self._server: Server | None = None
        _open.add(self)

    def __iter__(self) -> "Simulated":
        return self

    def __next__(self) -> RoundRecord:
        record = next(self._coming)
        self.note(record)
        return record

    def note(self, record: RoundRecord) -> None:
        """Keep a record, but only the last model."""
        self.records.append(replace(record, server=None))
        self._server = record.server

    def result(self, *, progress: bool = False) -> "Simulated":
        """This object, after computing the remaining rounds; none remain if it was closed or interrupted. With
        `progress` a bar shows them."""
        with round_progress(self.run.rounds - len(self.records), enabled=progress) as step:
            for record in self:
                step(self.run.short_algorithm, record)
        done = self.records[-1].round if self.records else 0
        if done < self.run.rounds and not (self.records and self.records[-1].diverged):
            raise ValueError(
                f"run {self.run.hash} was stopped after round {done} of {self.run.rounds}; call simulate again; with a "
                "store it continues from the last model stored there"
            )
        return self

    def close(self) -> None:
        """Stop here: a store keeps the model of the last round, and another call continues from it."""
        getattr(self._coming, "close", lambda: None)()

    @property
    def finished(self) -> FinishedRun:
        """The records in the form that tables need."""
        card = self.store.folder(self.run.hash).card() if self.store is not None else None
        return FinishedRun(self.run.model_dump(), [record.as_dict() for record in self.records], card)

    @property
    def summary(self) -> dict[str, Any]:
        """The last evaluated round, and the mean accuracy of the last ten."""
        self._begun()
        kept = self.finished
        return summarise(kept.run, kept.records, kept.card)

    @property
    def accuracy(self) -> float | None:
        """On the test set, in the last evaluated round."""
        accuracy: float | None = self.summary["accuracy"]
        return accuracy

    def rounds_to(self, accuracy: float) -> int | None:
        """The first evaluated round with at least this accuracy; None if there is none yet."""
        check_number("accuracy", accuracy, 0, 1, above=True)
        curve = [(record.round, record.accuracy) for record in self.records if record.accuracy is not None]
        return first_round(curve, accuracy)

    @property
    def bytes_sent(self) -> BytesSent:
        """What a federation would have sent in each round; see `simulation/traffic.py` for what counts."""
        return bytes_sent(self.run, self.records)

    @property
    def model(self) -> TrainedModel:
        """The global model after the last round so far, in evaluation mode, for inputs as stored."""
        self._begun()
        run = self.run
        if self.records[-1].diverged:
            raise ValueError(f"run {run.hash} has diverged: its model gives no finite numbers")
        data = facts(run.dataset, run.seed, run.clients, run.data_dir)
        return trained(*describe_model(run, data, self.records[-1].round, self._server or self._stored_server()))

    def _stored_server(self) -> Server:
        """Load the model from the store: records that were read have none."""
        assert self.store is not None
        folder, round = self.store.folder(self.run.hash), self.records[-1].round
        if folder.saved() != round:
            raise ValueError(
                f"the store keeps the model of round {folder.saved()} of run {self.run.hash}, not of round {round}; "
                "simulate it without a store to get that model"
            )
        return load_checkpoint(folder.checkpoint, diverged=folder.diverged()).server

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each round."""
        rows = [{k: v for k, v in record.as_dict().items() if k != "probes"} | record.probes for record in self.records]
        return data_frame(rows).set_index("round")

    def table(self, style: Style = "markdown") -> str:
        """This run's row in a comparison."""
        self._begun()
        return table_text({self.run.short_algorithm: [self]}, style)

    def plot(self, axes: Any = None, measure: str = "accuracy") -> Any:
        """The measure of every evaluated round, in a new Matplotlib figure or on the given axes."""
        self._begun()
        return drawn({self.run.short_algorithm: [self]}, axes, measure)

    def _begun(self) -> None:
        if not self.records:
            raise ValueError("no round has been simulated yet: iterate over the run, or call result()")

    def __repr__(self) -> str:
        return f"<{self.run.short_algorithm} on {self.run.title}: {len(self.records)} of {self.run.rounds} rounds>"


@atexit.register
def _close_all() -> None:
    """At the end of a program, while Python can still write a checkpoint."""
    for one in list(_open):
        with suppress(ValueError):  # a thread is in the middle of a round
            one.close()


def simulate(
    run: Run, probes: Sequence[Probe] = (), *, every: int = 1, store: Store | Path | str | None = None
) -> Simulated:
    """Simulate a run, round by round: `for record in simulate(run)`, or `simulate(run).result()` for all rounds.

    With a store, or its folder, finished rounds are read instead of computed again. Probes run every `every` rounds.
    """
    if not isinstance(run, Run):
        raise TypeError(f"{run!r} is not a run; write Run(dataset=..., algorithm=..., rounds=...)")
    kept = Store.of(store)
    return Simulated(run, rounds_of(run, probes, every=every, store=kept), kept)


Group = dict[str, list[Simulated]]


def rows_of(group: Group, target: float | None = None, baseline: str = BASELINE) -> list[dict[str, Any]]:
    """One row per method; rounds are counted to the accuracy `target`."""
    if target is not None:
        check_number("target", target, 0, 1, above=True)
    finished = {name: [one.finished for one in seeds] for name, seeds in group.items()}
    return method_rows(finished, target=target, baseline=baseline)


def table_text(group: Group, style: Style, target: float | None = None, baseline: str = BASELINE) -> str:
    check_choice("style", style, get_args(Style))
    rows = rows_of(group, target, baseline)
    if style == "latex":
        return latex(rows, {name: [one.run.hash for one in seeds] for name, seeds in group.items()})
    return markdown(rows, target) if style == "markdown" else csv_text(rows)


def drawn(group: Group, axes: Any, measure: str) -> Any:
    """The figure that holds the curves."""
    series: Series = {name: [one.finished.records for one in seeds] for name, seeds in group.items()}
    if not any(isinstance(record.get(measure), float) for runs in series.values() for run in runs for record in run):
        raise ValueError(f"no round has a value for {measure!r}; allowed: accuracy, balanced_accuracy, client_accuracy")
    title = next(iter(group.values()))[0].run.title
    if axes is None:
        return curve_figure(series, title, measure)
    draw_method_curves(axes, series, title, measure)
    axes.legend(fontsize=8)
    return axes.figure


def data_frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"to_pandas needs pandas ({error}): pip install pandas; records hold the same") from error
    return pandas.DataFrame(rows)
