"""Curves whose evaluations are dense at the end only."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from fedskew.runs.summary import LAST

Points = list[tuple[float, float]]
_DENSER = 3
"""Times as dense as before, from which on the last rounds would be drawn as a zigzag."""


def evened(points: Sequence[tuple[float, float]]) -> Points:
    """The last ten rounds as a level, their mean, where they were evaluated much more densely than those before; else
    the points as they are. The level begins in the middle of those rounds, so that the line leads there evenly."""
    if not points:
        return []
    last = points[-1][0]
    before = [point for point in points if point[0] <= last - LAST]
    end = [point for point in points if point[0] > last - LAST]
    if not before or len(end) < 3 or _gap([(0, 0), *before]) < _DENSER * _gap(end):
        return list(points)
    mean = statistics.fmean(value for _, value in end)
    return [*before, (statistics.fmean(round for round, _ in end), mean), (last, mean)]


def _gap(points: Sequence[tuple[float, float]]) -> float:
    """The usual number of rounds between evaluations."""
    return statistics.median(b[0] - a[0] for a, b in pairwise(points))
