"""How many rounds a method takes to reach an accuracy, and the share of the IID gap that it closes.

A curve is a run's accuracy at the evaluated rounds; nothing is known about the rounds between. Seeds are paired: under
one seed methods share data, split, initial model, cohorts and batches.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedskew.runs.summary import tail

IID = "iid"
"""The partition without skew."""
Curve = Sequence[tuple[int, float]]
Curves = Mapping[int, Curve]
"""By seed."""
_ROUNDING = 1e-9
"""Accuracies that differ by less are the same: they are shares of counted examples, and a mean of shares is rounded."""


@dataclass(frozen=True)
class Reach:
    """`rounds` is the median over `seeds` seeds, of which `reached` reached the accuracy; None if the median seed never
    did. For an even number of seeds it is the later of the two middle values."""

    rounds: int | None
    reached: int
    seeds: int

    def __str__(self) -> str:
        """`40`, `40 (2 of 3 seeds)`, `never`, `only 1 of 3 seeds`"""
        if self.reached in (0, self.seeds):
            return "never" if self.rounds is None else str(self.rounds)
        some = f"{self.reached} of {self.seeds} seeds"
        return f"only {some}" if self.rounds is None else f"{self.rounds} ({some})"


@dataclass(frozen=True)
class Share:
    """`share` of a gap of `gap` between FedAvg under skew and FedAvg on IID data, both means over `seeds` seeds."""

    share: float
    gap: float
    seeds: int

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} %"


def end(curve: Curve) -> float:
    """The mean accuracy of the last ten rounds, at most half of all."""
    last = curve[-1][0]
    return statistics.fmean(accuracy for round, accuracy in curve if round > last - tail(last))


def first_round(curve: Curve, target: float) -> int | None:
    """The first evaluated round with at least this accuracy; None if there is none."""
    return next((round for round, accuracy in curve if accuracy > target - _ROUNDING), None)


def rounds_to_reach(mine: Curves, target: float | Curves) -> Reach | None:
    """How many rounds a method takes to reach an accuracy, or FedAvg's final accuracy under the same seed, among those
    that were evaluated with every seed; None if no seed has both."""
    if isinstance(target, Mapping):
        wanted = {seed: end(curve) for seed, curve in target.items()}
    else:
        wanted = dict.fromkeys(mine, target)
    curves = {seed: dict(curve) for seed, curve in mine.items() if seed in wanted}
    if not curves:
        return None
    common = sorted(set.intersection(*map(set, curves.values())))
    found = [first_round([(round, curve[round]) for round in common], wanted[seed]) for seed, curve in curves.items()]
    known = sorted(round for round in found if round is not None)
    middle = len(found) // 2
    return Reach(known[middle] if middle < len(known) else None, len(known), len(found))


def gap_closed(mine: Curves, base: Curves, iid: Curves) -> Share | None:
    """(method - FedAvg) / (FedAvg on IID data - FedAvg), each the mean at the end over the seeds that all three have: a
    ratio of means, since a single seed's gap can be small. None if no seed has all three, or there is no gap."""
    seeds = sorted(set(mine) & set(base) & set(iid))
    if not seeds:
        return None
    method, plain, level = (statistics.fmean(end(curves[seed]) for seed in seeds) for curves in (mine, base, iid))
    gap = level - plain
    return Share((method - plain) / gap, gap, len(seeds)) if gap > _ROUNDING else None


def target_words(target: float | None) -> str:
    """What rounds are counted to: `FedAvg's end`, `60 %`."""
    return "FedAvg's end" if target is None else f"{100 * target:g} %"
