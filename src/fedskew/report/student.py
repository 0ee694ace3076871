"""Differences over seeds with a Student t interval; n is too small for the normal one."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean difference over n pairs; `half` is half the width of its interval, None for a single pair."""

    mean: float
    half: float | None
    n: int

    @property
    def apart(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half is not None and abs(self.mean) > self.half


def paired(differences: Sequence[float], level: float = LEVEL) -> Interval | None:
    """mean +- t s / sqrt(n) with s the sample standard deviation and t of n - 1 degrees of freedom."""
    n = len(differences)
    if n == 0:
        return None
    mean = statistics.fmean(differences)
    if n == 1:
        return Interval(mean, None, 1)
    return Interval(mean, t_quantile(level, n - 1) * statistics.stdev(differences) / math.sqrt(n), n)


def t_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| <= t) = level, by bisection of `t_share`."""
    if not 0 < level < 1 or freedom < 1:
        raise ValueError(f"level is {level} and freedom {freedom}; allowed: 0 < level < 1, freedom 1 or more")
    low, high = 0.0, 1.0
    while t_share(high, freedom) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def t_share(t: float, freedom: int) -> float:
    """P(|T| <= t) for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 (odd) and 26.7.4 (even)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
