"""What each method gains over FedAvg in one setting, and how near that setting's skew is."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedskew.advice.kinds import kind_of
from fedskew.core import spec
from fedskew.runs.verdict import BASELINE, NOT_DECIDED, OPEN, Difference, paired

Setting = Mapping[str, Any]
SAME, KIND, OTHER = CLOSENESS = ("same", "kind", "other")
"""A setting's data: the user's data set with the same kind of model, other data of its kind, other data."""


@dataclass(frozen=True)
class Gain:
    """A method, by one of its variants, against FedAvg in one setting, over the seeds that both finished: `points` of
    accuracy, and rounds `saved` on the way to FedAvg's end. If FedAvg diverged with all seeds that the method finished,
    `seeds` are those, and there is no verdict."""

    method: str
    algorithm: str
    points: Difference | None
    saved: Difference | None
    verdict: str | None
    accuracy: float | None
    seeds: list[int]
    diverged: list[int]

    @property
    def mean(self) -> float:
        return self.points.mean if self.points else float("-inf")

    @property
    def is_decided(self) -> bool:
        return self.verdict not in (None, OPEN, NOT_DECIDED)

    @property
    def has_interval(self) -> bool:
        """Whether it has the seeds to be decided."""
        return self.verdict not in (None, NOT_DECIDED)

    @property
    def is_alone(self) -> bool:
        """Whether it finished only seeds with which FedAvg diverged."""
        return bool(self.seeds) and self.points is None

    @property
    def least(self) -> float:
        """The lower end of the interval."""
        return self.points.least if self.points else float("-inf")


@dataclass(frozen=True)
class Evidence:
    """A setting with its methods' accuracies, and gains over FedAvg, largest first."""

    number: int
    own: bool
    data: str
    cell: str
    kind: str
    distance: float
    skew: dict[str, float]
    setting: Setting
    base: Gain
    gains: list[Gain]

    @property
    def rounds(self) -> int:
        return int(self.setting["rounds"])

    @property
    def split(self) -> str:
        return str(self.setting["partition"])

    @property
    def rank(self) -> tuple[int, bool, bool, float]:
        """Its place: by its data, then what decides something, then what has an interval, then the nearest."""
        decided, judged = (any(getattr(g, name) for g in self.gains) for name in ("is_decided", "has_interval"))
        return CLOSENESS.index(self.data), not decided, not judged, self.distance


Pair = tuple[Evidence, Gain]
_Seeds = dict[int, tuple[Any, Any, Any]]


def scaled(skew: Mapping[str, float], classes: int) -> dict[str, float]:
    """The indices, each between 0 and 1: effective classes as a share of the number of classes."""
    return {**skew, "effective_classes": skew["effective_classes"] / classes}


def distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Mean absolute difference of the four scaled indices."""
    return statistics.fmean(abs(a[name] - b[name]) for name in a)


def mean_skew(setting: Setting, table: Mapping[str, Any]) -> dict[str, float]:
    cards = [table["partitions"][name] for name in setting["methods"][BASELINE]["partitions"]]
    rows = [scaled(card["skew"], card["classes"]) for card in cards]
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def evidence_of(
    setting: Setting, here: Mapping[str, float], skew: dict[str, float], data: str, *, own: bool = False
) -> Evidence:
    """In the user's own runs every variant is a method. In published runs a method is its best variant on held-out
    examples, else the one with default arguments: the test set never decides."""
    methods, families = setting["methods"], dict[str, list[str]]()
    for name in methods:
        family = name if own else spec.family(name)
        families.setdefault(family, []).append(name)
    families.pop(BASELINE)
    best = {f: max(names, key=lambda name: (_held_out(methods[name]), name == f)) for f, names in families.items()}
    gains = [gain for family, name in best.items() if (gain := _gain(family, name, methods)).seeds or gain.diverged]
    cell = setting["dataset"] + ("" if setting["partition"] == "natural" else f"/{setting['partition']}")
    kind, base = kind_of(setting["dataset"], setting["model"]), _gain(BASELINE, BASELINE, methods)
    ordered = sorted(gains, key=lambda gain: -gain.mean)
    return Evidence(0, own, data, cell, kind, distance(here, skew), skew, setting, base, ordered)


def _held_out(method: Mapping[str, Any]) -> float:
    values = [value for value in method["held_out"] if value is not None]
    return statistics.fmean(values) if values and None not in method["accuracy"] else 0.0


def ahead(name: str, other: str, methods: Mapping[str, Any]) -> Difference | None:
    """How many points one method of a setting is ahead of another one."""
    mine, base = (_by_seed(methods[one]) for one in (name, other))
    alike = _alike(mine, base)
    return paired(*({s: _percent(one[s][0]) for s in alike} for one in (mine, base)))


def _alike(mine: _Seeds, base: _Seeds) -> list[int]:
    """Seeds under which both runs had the same data, split, initial model and cohorts."""
    return [s for s in mine if s in base and mine[s][2] == base[s][2]]


def _gain(family: str, name: str, methods: Mapping[str, Any]) -> Gain:
    """Paired by seed."""
    mine, base = (_by_seed(methods[one]) for one in (name, BASELINE))
    alike, points = _alike(mine, base), ahead(name, BASELINE, methods)
    finished = [s for s in alike if mine[s][0] is not None]
    seeds = [s for s in finished if base[s][0] is not None] or finished
    saved = paired(*({s: one[s][1] for s in seeds if one[s][1] is not None} for one in (base, mine)))
    accuracy = statistics.fmean(100 * mine[s][0] for s in seeds) if seeds else None
    diverged = [seed for seed, (reached, *_) in mine.items() if reached is None]
    return Gain(family, name, points, saved, points.verdict if points else None, accuracy, seeds, diverged)


def _percent(accuracy: float | None) -> float | None:
    return None if accuracy is None else round(100 * accuracy, 4)


def _by_seed(method: Mapping[str, Any]) -> _Seeds:
    """Accuracy over the last ten rounds, rounds to FedAvg's end, and the split, of each seed."""
    rows = zip(method["accuracy"], method["reach"], method["partitions"], strict=True)
    return dict(zip(method["seeds"], rows, strict=True))
