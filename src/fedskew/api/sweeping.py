"""A run at many settings, for Python programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.api.comparing import Several, fields_of, listed_values, simulated
from fedskew.api.simulated import Simulated, Style, data_frame
from fedskew.core.checks import check_choice
from fedskew.report.sweep_figure import draw_on, over, swept_figure
from fedskew.report.swept import SweepTable
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.sweep import Sweep


class Swept(Several):
    """Finished runs by setting: `swept["tau=2, lr=0.1"]` lists its runs in order of seeds. Printing it shows the table.

    Settings are compared with a reference: the one with all defaults, or with the first value where the default is not
    among them. On another data set, split or number of clients it is the same setting there. If examples are held out,
    accuracies on those are compared, else those on the test set.
    """

    def __init__(self, sweep: Sweep, runs: dict[str, list[Simulated]]) -> None:
        super().__init__(runs)
        finished = [[one.finished for one in seeds] for seeds in runs.values()]
        self._table = SweepTable.of(sweep.settings, finished, sweep.reference, sweep.title)

    def rows(self) -> list[dict[str, Any]]:
        """One row per setting: its values, measures with mean and std over seeds, the verdict against the reference."""
        return self._table.rows

    def table(self, style: Style = "markdown") -> str:
        """The rows as text."""
        forms = {"markdown": self._table.markdown, "latex": self._table.latex, "csv": self._table.csv}
        check_choice("style", style, forms)
        return forms[style]()

    def plot(self, axes: Any = None) -> Any:
        """Accuracy against the parameter with the most numbers, in a new Matplotlib figure or on the given axes."""
        if axes is None:
            return swept_figure(self._table)
        draw_on(axes, self._table)
        axes.set_title(f"{self._table.title}, {over(self._table)}", fontsize=9)
        axes.legend(fontsize=8)
        return axes.figure

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each setting and seed."""
        pairs = zip(self._table.rows, self.runs.values(), strict=True)
        return data_frame([{**run.summary, **row["values"]} for row, seeds in pairs for run in seeds])


def sweep(
    run: Run | Mapping[str, Any],
    values: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 1,
    store: Store | Path | str | None = None,
    progress: bool = False,
) -> Swept:
    """Simulate a run at every combination of values: `sweep(run, {"tau": [1, 2, 5], "lr": [0.03, 0.1]})`.

    Names are fields of a run and arguments of its method (`tau`, or `fedlc.tau`). Instead of a run its fields can be
    given. With a store, or its folder, finished rounds are read instead of computed again. With `progress` a bar shows
    how far they are.
    """
    if not values:
        raise ValueError('sweep needs values; for example {"tau": [0.5, 1, 2, 5]}')
    made = Sweep.of(fields_of(run), listed_values(values), seeds)
    names = [name for name, _ in made.groups]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two settings are called {min(twice)}; sweep them one after the other")
    return Swept(made, simulated(made.groups, Store.of(store), progress=progress))
