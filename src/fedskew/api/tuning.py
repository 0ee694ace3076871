"""Knobs chosen on held-out examples, for Python programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fedskew.api.comparing import Compared, fields_of, listed_methods, listed_values, simulated
from fedskew.api.simulated import Simulated
from fedskew.core.checks import check_choice
from fedskew.core.spec import Value
from fedskew.progress import held_out_only, round_progress
from fedskew.report.tuned import tries_csv, tries_markdown
from fedskew.runs.given import algorithm_spec
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.runs.verdict import BASELINE
from fedskew.simulation.tune import MethodTries, Tuning


class Tuned(Compared):
    """The chosen setting of each method on the test set, as `compare` gives it, and how it was chosen.

    A method whose tries all diverged is left out of the comparison.
    """

    def __init__(
        self, runs: dict[str, list[Simulated]], choices: Sequence[MethodTries], baseline: str = BASELINE
    ) -> None:
        super().__init__(runs, baseline)
        self._choices = choices

    @property
    def chosen(self) -> dict[str, dict[str, Value]]:
        """The chosen values of each method's knobs."""
        return {choice.name: choice.best.values for choice in self._choices if choice.best is not None}

    @property
    def at_an_edge(self) -> dict[str, list[str]]:
        """For each method, knobs whose accuracy still rises towards the outermost value tried."""
        return {choice.name: choice.at_an_edge for choice in self._choices}

    @property
    def tries(self) -> list[dict[str, Any]]:
        """All tries: method, values, rounds, accuracy on held-out examples (None if it diverged), whether chosen."""
        return [row for choice in self._choices for row in choice.rows]

    def tries_table(self, style: Literal["markdown", "csv"] = "markdown") -> str:
        """The tries as text."""
        forms = {"markdown": tries_markdown, "csv": tries_csv}
        check_choice("style", style, forms)
        return forms[style](self.tries)


def tune(
    run: Run | Mapping[str, Any],
    algorithms: Sequence[Any],
    values: Mapping[str, Sequence[Any]] | None = None,
    *,
    budget: int = 8,
    search: Literal["random", "grid"] = "random",
    halving: bool = False,
    choosing_seeds: int = 1,
    seeds: int = 3,
    store: Store | Path | str | None = None,
    baseline: Any = None,
    progress: bool = False,
) -> Tuned:
    """Choose each method's knobs on held-out training examples, then compare the chosen settings on the test set.

    Every method gets `budget` tries. Its knobs are `lr`, unless the run sets it, and its own arguments that it does not
    set; `values` lists the candidates for a knob. Tries use `choosing_seeds` seeds, starting at the run's; the
    comparison uses the `seeds` after them, and all training examples. Instead of a run its fields can be given. With a
    store, or its folder, finished rounds are read instead of computed again; without one, `halving` begins tries again.
    Verdicts are against FedAvg, or against the `baseline`, which is one of the methods. With `progress` a bar shows how
    far they are.
    """
    methods = [_spec(each) for each in listed_methods(algorithms)]
    how = {"budget": budget, "choosing_seeds": choosing_seeds, "seeds": seeds}
    fields = {name: value for name, value in fields_of(run).items() if name != "algorithm"}
    candidates = listed_values(values or {})
    tuning, kept = Tuning.of(fields, methods, candidates, search=search, halving=halving, **how), Store.of(store)
    judged_by = BASELINE if baseline is None else tuning.name_of(_spec(baseline))
    with round_progress(tuning.rounds, enabled=progress) as step:
        choices = tuning.choose(kept, held_out_only(step))
    return Tuned(simulated(tuning.comparison(choices).groups, kept, progress=progress), choices, judged_by)


def _spec(method: Any) -> str:
    return method if isinstance(method, str) else algorithm_spec(method)
