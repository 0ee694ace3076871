"""When one method counts as above another: the one rule of tables, pages, the map and advice."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

BASELINE = "fedavg"
LEVEL = 0.95
MEASURE = "accuracy_last10"
"""What verdicts are about, as a run's summary names it."""
CLOSE = 2.0
"""Points of accuracy by which tied methods may differ. It is more than any standard deviation over seeds in the paper's
tables, so a smaller difference could not be distinguished from a change of seed."""
FEWEST = 3
"""Seeds that decide. Accuracies are counts of test examples, so two differences are often equal or nearly so by chance,
and the interval of two, whose one degree of freedom knows nothing else of the spread, then has no width."""
OPEN = "open"
NOT_DECIDED = "not decided"
VERDICTS = ("above", "below", "tied", OPEN, NOT_DECIDED)
RULE = (
    "A method is above or below another if the 95 % Student interval of their difference, paired by seed, excludes "
    f"zero. If it contains zero, they are tied if all of it lies within {CLOSE:g} points of zero; otherwise the "
    "question is open and needs more seeds. One or two seeds decide nothing. A method that diverged with a seed that "
    "the other one finished is not above it or tied with it, whatever the other seeds say: that is open as well. "
    "Differences are in points of the mean accuracy of the last ten rounds (of a short run, its last half), intervals "
    "in brackets, without a correction for the number of comparisons."
)


@dataclass(frozen=True)
class Difference:
    """How many points one method is ahead of another over `seeds` seeds: mean ± half is the interval; fewer than
    `FEWEST` seeds have none. With `lost` more seeds only this method diverged, with `other_lost` only the other."""

    mean: float
    half: float | None
    seeds: int
    lost: int = 0
    other_lost: int = 0

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.half is None:
            return NOT_DECIDED
        return OPEN if self._finished in self._refused else self._finished

    @property
    def _finished(self) -> str:
        """What the seeds that both finished say."""
        if self.least <= 0 <= self.most:
            return "tied" if self.least >= -CLOSE and self.most <= CLOSE else OPEN
        return "above" if self.mean > 0 else "below"

    @property
    def _refused(self) -> set[str]:
        """What they cannot say, since a method that diverged is not as good as one that did not."""
        return {*(("above", "tied") if self.lost else ()), *(("below", "tied") if self.other_lost else ())}

    @property
    def least(self) -> float:
        """The lower end of the interval; the mean without one."""
        return self.mean - (self.half or 0.0)

    @property
    def most(self) -> float:
        """The upper end of the interval."""
        return self.mean + (self.half or 0.0)

    @property
    def interval(self) -> str:
        """`[+3.52, +8.48]`"""
        return "" if self.half is None else f"[{self.least:+.2f}, {self.most:+.2f}]"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with the verdict."""
        return {**asdict(self), "verdict": self.verdict}

    def __str__(self) -> str:
        """`above, +6.00 [+3.52, +8.48] over 3 seeds`; `not decided: two seeds, +6.00`"""
        return f"{self.verdict}{':' if self.half is None else ','} {self.figures}"

    def sentence(self, one: str, other: str) -> str:
        """`FedLC is above FedAvg, +6.00 [+3.52, +8.48] over 3 seeds`"""
        if self.verdict in (OPEN, NOT_DECIDED):
            return f"{one} against {other} is {self}"
        return f"{one} is {'tied with' if self.verdict == 'tied' else self.verdict} {other}, {self.figures}"

    @property
    def figures(self) -> str:
        """`+6.00 [+3.52, +8.48] over 3 seeds`, `two seeds, +6.00`, each with its `losses`"""
        if self.half is None:
            return f"{'one seed' if self.seeds == 1 else 'two seeds'}, {self.mean:+.2f}{self.losses}"
        return f"{self.mean:+.2f} {self.interval} over {self.seeds} seeds{self.losses}"

    @property
    def losses(self) -> str:
        """` (2 more diverged)`, ` (the other diverged with 1 more)`; nothing if neither lost a seed alone."""
        mine = f" ({self.lost} more diverged)" if self.lost else ""
        return mine + (f" (the other diverged with {self.other_lost} more)" if self.other_lost else "")


def paired(mine: Mapping[int, float | None], other: Mapping[int, float | None]) -> Difference | None:
    """mean ± t s / √n of the differences under the n seeds that both have, s their sample standard deviation and t
    Student's quantile with n - 1 degrees of freedom; without an interval if n is below `FEWEST`. Under one seed both
    share data, partition, initial model, cohorts and batches. A seed that diverged is None; one that was not run is
    absent, and is not lost."""
    both = [(value, other[seed]) for seed, value in mine.items() if seed in other]
    gaps = [value - base for value, base in both if value is not None and base is not None]
    if not gaps:
        return None
    lost = sum(value is None and base is not None for value, base in both)
    other_lost = sum(value is not None and base is None for value, base in both)
    n, mean = len(gaps), statistics.fmean(gaps)
    return Difference(mean, None if n < FEWEST else _half(gaps), n, lost, other_lost)


def _half(gaps: Sequence[float]) -> float:
    """Half of the interval."""
    from scipy.special import stdtrit  # 0.1 s that only three seeds or more need

    n = len(gaps)
    return float(stdtrit(n - 1, (1 + LEVEL) / 2)) * statistics.stdev(gaps) / math.sqrt(n)


def ahead(row: Mapping[str, Any], other: Mapping[str, Any], measure: str = MEASURE) -> Difference | None:
    """`paired` of two rows of `over_seeds`, whose accuracies are fractions; the lower loss is ahead."""
    scale = _sign(measure) * 100
    return paired(*(_scaled(one["seeds"], one[measure]["each"], scale) for one in (row, other)))


def _scaled(seeds: Sequence[int], each: Sequence[float | None], scale: float) -> dict[int, float | None]:
    return {seed: None if value is None else scale * value for seed, value in zip(seeds, each, strict=True)}


def _sign(measure: str) -> int:
    return -1 if measure == "loss" else 1


def against_baseline(rows: Sequence[Mapping[str, Any]], baseline: str = BASELINE) -> list[Difference | None]:
    """Each row of a comparison against the baseline's; None for the baseline itself, and where there is nothing to
    compare."""
    base = next((row for row in rows if row["method"] == baseline), None)
    return [None if base is None or row is base else ahead(row, base) for row in rows]


BEST = "best"


def leaders(rows: Sequence[Mapping[str, Any]], measure: str) -> dict[int, str]:
    """The rows at the top, each with a word: `best` for one that is above all others, else `tied` for the first and
    those tied with it, where it is above all others. Nothing where that is open or seeds are too few, nor for a loss,
    which is not in points."""
    known = [i for i, row in enumerate(rows) if row[measure]["mean"] is not None]
    first = max(known, key=lambda i: _sign(measure) * rows[i][measure]["mean"], default=None)
    if first is None or len(known) < 2 or rows[first]["diverged"]:
        return {}
    found = {i: ahead(rows[first], rows[i], measure) for i in known if i != first}
    said = {i: difference.verdict if difference else None for i, difference in found.items()}
    if set(said.values()) == {"above"}:
        return {first: BEST}
    if measure == "loss" or not set(said.values()) <= {"above", "tied"}:
        return {}
    return dict.fromkeys([first, *(i for i, word in said.items() if word == "tied")], "tied")


def best(rows: Sequence[Mapping[str, Any]], measure: str) -> int | None:
    """Which row of `over_seeds` is above every other one (its loss below); None where the rule does not say so."""
    return next((i for i, word in leaders(rows, measure).items() if word == BEST), None)
