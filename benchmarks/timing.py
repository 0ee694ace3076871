"""Measuring on a machine that has other things to do: take turns, and say how far the figures spread."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles

Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, median, high = quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True)
class Figure:
    """A line of the table: a value in its unit, and where there is one, the limit that it is to keep."""

    part: str
    name: str
    value: Spread
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def kept(self) -> bool | None:
        return None if self.limit is None else self.value.median <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "kept": self.kept}


def interleaved(tasks: Mapping[str, Callable[[], object]], turns: int, warm_up: int = 3) -> Seconds:
    """Seconds of each task at each turn: A B C, A B C, ..., so that a busy moment hits them alike."""
    for task in tasks.values():
        for _ in range(warm_up):
            task()
    seconds: Seconds = {name: [] for name in tasks}
    for _ in range(turns):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(seconds: Seconds, name: str, against: str) -> Spread:
    """The ratio of the medians, with the quartiles of the ratios turn by turn."""
    turns = Spread.of([a / b for a, b in zip(seconds[name], seconds[against], strict=True)])
    return Spread(Spread.of(seconds[name]).median / Spread.of(seconds[against]).median, turns.low, turns.high)


def milliseconds(part: str, seconds: Seconds) -> list[Figure]:
    return [Figure(part, name, Spread.of([1e3 * s for s in values]), "ms") for name, values in seconds.items()]


def exact(part: str, name: str, value: float, unit: str, limit: float | None = None) -> Figure:
    """A figure that does not spread."""
    return Figure(part, name, Spread(value, value, value), unit, limit)
