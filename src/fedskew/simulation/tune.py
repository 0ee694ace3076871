"""Choosing each method's knobs on held-out training examples, with the same number of tries for every method.

tuning = Tuning.of({"dataset": "digits", "rounds": 40}, ["fedavg", "fedlc"], budget=8)
choices = tuning.choose(store)            # looks at held-out examples alone
comparison = tuning.comparison(choices)   # the chosen settings under fresh seeds, on all training examples
for name, run, record in simulate_groups(comparison.groups, store): ...
"""

import math
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from fedskew.core import spec
from fedskew.knobs import LR, Choices, Knob, Range, find_argument, knobs_of, short_without
from fedskew.runs.measures import end
from fedskew.runs.run import Run, check_seeds
from fedskew.runs.schedules import NEED_ROUNDS
from fedskew.runs.store import Store
from fedskew.runs.summary import setting_text
from fedskew.simulation.compare import Comparison
from fedskew.simulation.records import RoundRecord
from fedskew.simulation.search import Values, generator_for, settings_to_try
from fedskew.simulation.session import simulate_groups
from fedskew.simulation.sweep import run_at, value_at

VALIDATION = 0.1
"""The share of the training examples that is held out for choosing."""
FIELDS = (
    "lr", "momentum", "weight_decay", "batch_size", "local_epochs", "optimizer", "lr_schedule", "grad_clip", "augment",
    "weighting", "model",
)  # fmt: skip
"""Fields that may be tuned: they change how a model is trained, not what it is measured on."""
_ENOUGH = 5
"""Values of a knob below which nothing is said about its range."""
Curve = dict[int, float]
"""Accuracy on held-out examples after rounds."""
Watch = Callable[[str, RoundRecord], None]
RoundsOf = Callable[
    [Sequence[tuple[str, Sequence[Run]]], Store | None], Generator[tuple[str, Run, RoundRecord], None, None]
]
"""What computes groups of runs, each with its method's name: `simulate_groups`, or several processes."""


@dataclass(frozen=True)
class Try:
    """A setting, its runs under the seeds that choices are made with, and how it did: `score` is its accuracy on
    held-out examples after `rounds` rounds, None before it has run or if it diverged."""

    values: Values
    runs: list[Run]
    rounds: int = 0
    score: float | None = None


@dataclass(frozen=True)
class MethodTries:
    """All tries of a method. The best is the one with the highest score of those that went furthest, the first of
    equals; None if all of them diverged."""

    method: str
    name: str
    knobs: list[Knob]
    tries: list[Try]

    @property
    def best(self) -> Try | None:
        return max(_finished(self.tries), key=_standing, default=None)

    @property
    def at_an_edge(self) -> list[str]:
        """Knobs whose accuracy still rises towards the lowest or highest value that was tried."""
        return [knob.name for knob in self.knobs if _rises_to_an_edge(knob.name, self.tries)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The tries, JSON-ready and without anything of the test set."""
        return [
            {
                "method": self.name,
                "values": each.values,
                "rounds": each.rounds,
                "held_out": each.score,
                "chosen": each is self.best,
                "runs": [run.hash for run in each.runs],
            }
            for each in self.tries
        ]


@dataclass(frozen=True)
class Tuning:
    """What will be tried. Tries use the seeds `chosen_with`; results are reported for other seeds."""

    fields: dict[str, Any]
    methods: list[MethodTries]
    chosen_with: list[int]
    seeds: list[int]
    halving: bool

    @classmethod
    def of(
        cls,
        base: Mapping[str, Any],
        methods: Sequence[str],
        values: Mapping[str, Sequence[Any]] | None = None,
        *,
        budget: int = 8,
        search: str = "random",
        halving: bool = False,
        choosing_seeds: int = 1,
        seeds: int = 3,
    ) -> "Tuning":
        """`values` are the only candidates for a knob; a field that `base` sets is not tuned."""
        check_seeds(choosing_seeds)
        check_seeds(seeds)
        fields = {"validation": VALIDATION, **base}
        _check(fields, methods, values or {})
        first = run_at(fields, {"algorithm": methods[0]})
        chosen_with = [first.seed + s for s in range(choosing_seeds)]
        planned = list[MethodTries]()
        for method in methods:
            knobs = knobs_for(fields, method, values or {})
            found = settings_to_try(knobs, budget, search, generator_for(first.seed, method))
            name = short_without(method, {knob.name for knob in knobs} - Run.model_fields.keys())
            if name in (choice.name for choice in planned):
                raise ValueError(f"{name} appears twice; methods that are tuned need different names")
            tries = [_try(fields, method, each, chosen_with, knobs) for each in found]
            if halving:
                _check_continued(tries)
            planned.append(MethodTries(method, name, knobs, tries))
        fresh = [chosen_with[-1] + 1 + s for s in range(seeds)]
        return cls(fields, planned, chosen_with, fresh, halving)

    def name_of(self, baseline: str) -> str:
        """The name of a method that is tuned, given as it was or as tables list it."""
        for choice in self.methods:
            if baseline in (choice.method, choice.name):
                return choice.name
        names = "; ".join(choice.name for choice in self.methods)
        raise ValueError(f"baseline is {baseline!r}; allowed: one of the tuned methods, {names}")

    @property
    def rounds(self) -> int:
        """How many rounds all tries take together: rounds that are read again are shown again."""
        each = [left * rounds for choice in self.methods for left, rounds in self._rungs(choice)]
        return sum(each) * len(self.chosen_with)

    def choose(
        self,
        store: Store | None = None,
        watch: Watch = lambda name, record: None,
        rounds_of: RoundsOf = simulate_groups,
    ) -> list[MethodTries]:
        """Run all tries, those of all methods before any goes on. Nothing here uses the test set. Without a store,
        halving begins surviving tries again."""
        found, orders = list(self.methods), [list(range(len(choice.tries))) for choice in self.methods]
        for level in range(max(len(self._rungs(choice)) for choice in found)):
            due = [self._due(choice, level, order) for choice, order in zip(found, orders, strict=True)]
            groups = [(choice.name, runs) for choice, each in zip(found, due, strict=True) for runs in each.values()]
            with closing(rounds_of(groups, store)) as rounds:
                curves = _curves(rounds, watch)
            found = [_scored(choice, each, curves) for choice, each in zip(found, due, strict=True)]
            orders = [_best_first(choice, each) for choice, each in zip(found, due, strict=True)]
        return found

    def comparison(self, choices: Sequence[MethodTries]) -> Comparison:
        """The chosen setting of each method that has one, with new seeds and no example held out."""
        fields, runs = {**self.fields, "validation": 0.0}, dict[str, list[Run]]()
        for choice in choices:
            if choice.best is not None:
                values = {"algorithm": choice.method, **choice.best.values}
                runs[choice.name] = [run_at({**fields, "seed": seed}, values) for seed in self.seeds]
        if not runs:
            raise RuntimeError("every try of every method diverged; a smaller lr may help: --lr 0.001,0.003")
        return Comparison(runs)

    def _due(self, choice: MethodTries, level: int, order: Sequence[int]) -> dict[int, list[Run]]:
        """Which tries of this order run at a level of halving, by position, and their runs of that length."""
        left, rounds = dict(enumerate(self._rungs(choice))).get(level, (0, 0))
        return {i: [run.model_copy(update={"rounds": rounds}) for run in choice.tries[i].runs] for i in order[:left]}

    def _rungs(self, choice: MethodTries) -> list[tuple[int, int]]:
        return rungs(len(choice.tries), choice.tries[0].runs[0].rounds, halving=self.halving)


def knobs_for(fields: Mapping[str, Any], method: str, values: Mapping[str, Sequence[Any]]) -> list[Knob]:
    """The method's own knobs, then fields of the run; if values are given, only those."""
    found = {knob.name: knob for knob in knobs_of(method, Run.model_fields)}
    plain = run_at(fields, {"algorithm": method})
    if "lr" not in fields:
        found["lr"] = Knob("lr", LR, value_at(plain, "lr"))
    for name, given in values.items():
        if name in FIELDS or find_argument(method, name) is not None:
            options = [_option(run_at(fields, {"algorithm": method, name: value}), name) for value in given]
            found[name] = Knob(name, Choices(tuple(dict.fromkeys(options))), value_at(plain, name))
    return list(found.values())


def _option(run: Run, name: str) -> spec.Value:
    """What a run has for a name, so that another run can be made with it: the user's own code by its whole spec."""
    if name == "model" and spec.is_own(run.model):
        return run.model
    return value_at(run, name)


def rungs(tries: int, rounds: int, *, halving: bool) -> list[tuple[int, int]]:
    """How many tries are compared and how long they are: once, or twice as long for each half that survives."""
    times = max(1, math.ceil(math.log2(tries))) if halving else 1
    return [(math.ceil(tries / 2**i), math.ceil(rounds / 2 ** (times - 1 - i))) for i in range(times)]


def _curves(rounds: Iterable[tuple[str, Run, RoundRecord]], watch: Watch) -> dict[Run, Curve]:
    """Each run's curve; nothing of a run that diverged."""
    curves, diverged = dict[Run, Curve](), set[Run]()
    for name, run, record in rounds:
        if record.validation_accuracy is not None:
            curves.setdefault(run, {})[record.round] = record.validation_accuracy
        if record.diverged:
            diverged.add(run)
        watch(name, record)
    return {run: curve for run, curve in curves.items() if run not in diverged}


def _scored(choice: MethodTries, due: Mapping[int, Sequence[Run]], curves: Mapping[Run, Curve]) -> MethodTries:
    """A method whose tries have run so far: a try's score is the mean at the end over its seeds."""
    tries = list(choice.tries)
    for i, runs in due.items():
        known = all(run in curves for run in runs)
        score = statistics.fmean(end([*curves[run].items()]) for run in runs) if known else None
        tries[i] = replace(tries[i], rounds=runs[0].rounds, score=score)
    return replace(choice, tries=tries)


def _best_first(choice: MethodTries, order: Iterable[int]) -> list[int]:
    """Tries by position; equal ones stay in their order."""
    return sorted(order, key=lambda i: _standing(choice.tries[i]), reverse=True)


def _try(fields: Mapping[str, Any], method: str, values: Values, seeds: Sequence[int], knobs: Sequence[Knob]) -> Try:
    """A try that has not run. Nobody but the method knows which values it takes: where it refuses one of ours, the
    message says how to name others."""
    try:
        return Try(values, [run_at({**fields, "seed": seed}, {"algorithm": method, **values}) for seed in seeds])
    except ValueError as error:
        ours = [knob for knob in knobs if isinstance(knob.values, Range) and knob.name not in Run.model_fields]
        halves = [f"--set {k.name}={k.default / 2:g},{k.default:g}" for k in ours if isinstance(k.default, int | float)]
        if not halves:
            raise
        tried = setting_text(values)
        raise ValueError(
            f"{method} refuses the try {tried}: {error}; name the values to try, for example {' '.join(halves)}"
        ) from error


def _check(fields: Mapping[str, Any], methods: Sequence[str], values: Mapping[str, Sequence[Any]]) -> None:
    if not float(fields["validation"]) > 0:
        raise ValueError(f"validation is {fields['validation']}; allowed: above 0, since choices are made on it")
    for name, given in values.items():
        if not given:
            raise ValueError(f"{name} has no values; for example {name} 1,2,5")
        if name in Run.model_fields and name not in FIELDS:
            raise ValueError(f"{name} cannot be tuned: results would not be comparable; allowed: {', '.join(FIELDS)}")
        if name not in Run.model_fields and not any(find_argument(method, name) for method in methods):
            raise ValueError(f"{name} is neither a field of a run nor an argument of {', '.join(methods)}")


def _check_continued(tries: Sequence[Try]) -> None:
    for schedule in (each.runs[0].lr_schedule for each in tries):
        if spec.name_in(schedule) in NEED_ROUNDS:
            raise ValueError(f"halving continues runs, and lr_schedule {schedule} depends on how long a run is")


def _finished(tries: Sequence[Try]) -> list[Try]:
    return [each for each in tries if each.score is not None]


def _standing(tried: Try) -> tuple[int, float]:
    """Tries that went further come first, then those with the higher score; one that diverged is behind."""
    return tried.rounds, -1.0 if tried.score is None else tried.score


def _rises_to_an_edge(name: str, tries: Sequence[Try]) -> bool:
    """Whether the best value is an outermost one and the second best lies next to it. One of five or more: where
    nothing depends on the knob, that happens by chance in a tenth of all cases at most."""
    best: dict[float, tuple[int, float]] = {}
    for each in _finished(tries):
        value = each.values[name]
        if isinstance(value, int | float) and not isinstance(value, bool):
            best[value] = max(best.get(value, (0, 0.0)), _standing(each))
    order = sorted(best)
    leading = sorted(order, key=lambda value: best[value], reverse=True)[:2]
    return len(order) >= _ENOUGH and leading in (order[:2], order[:-3:-1])
