"""Majority, minority and missing classes of a client."""

import statistics
from collections.abc import Sequence

KINDS = ("majority", "minority", "missing")


def kinds(counts: Sequence[int]) -> dict[str, list[int]]:
    """A client's classes by their count n_c: majority n_c >= n / C, minority 0 < n_c < n / C, missing n_c = 0."""
    fair = sum(counts) / len(counts)
    return {
        "majority": [c for c, n in enumerate(counts) if n >= fair and n > 0],
        "minority": [c for c, n in enumerate(counts) if 0 < n < fair],
        "missing": [c for c, n in enumerate(counts) if n == 0],
    }


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the known values; None if there is none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
