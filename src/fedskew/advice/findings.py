"""Which methods help on a federation, according to the user's own runs on its split and to published runs on data of
the same kind under similar skew."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedskew.advice.kinds import UNKNOWN, kind_of
from fedskew.algorithms import ALGORITHMS, describe
from fedskew.core import spec
from fedskew.partition.cards import skew_indices
from fedskew.partition.owners import Ints
from fedskew.runs.verdict import BASELINE, NOT_DECIDED, OPEN, VERDICTS, Difference, paired

NEAR = 0.1
"""Evidence up to this distance is near. Two seeds of one Dirichlet setting can be as far apart."""
FAR = 0.25
"""Evidence beyond this distance is not shown."""
MOST = 3
"""How many methods besides FedAvg are recommended, or suggested to try."""
Setting = Mapping[str, Any]
EVEN = 0.05
"""Below this mean total variation labels are hardly skewed; 20 IID clients of 2,500 examples have about 0.02."""


@dataclass(frozen=True)
class Gain:
    """A method, by one of its variants, against FedAvg in one setting, over the seeds that both have: `points` of
    accuracy, and rounds `saved` on the way to FedAvg's end."""

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
    def least(self) -> float:
        """The lower end of the interval."""
        return self.mean - ((self.points and self.points.half) or 0.0)


@dataclass(frozen=True)
class Evidence:
    """A setting with its methods' accuracies, and gains over FedAvg, largest first."""

    number: int
    own: bool
    cell: str
    kind: str
    distance: float
    skew: dict[str, float]
    setting: Setting
    base: Gain
    gains: list[Gain]


@dataclass(frozen=True)
class Row:
    """A method over several settings: the numbers of those with each verdict, and of those where a seed diverged.
    `best` is the setting whose interval has the highest lower end, among those above FedAvg if there are any. It
    `stands` for use (above in some, below in none), depends (both), open, or keep (it is known not to help, so keep
    FedAvg)."""

    method: str
    algorithm: str
    stands: str
    settings: dict[str, list[int]]
    diverged: list[int]
    best: int


@dataclass(frozen=True)
class Advice:
    """The whole advice. `do` is use, depends, keep (FedAvg), unknown, even (hardly any skew), or nothing (one
    client or one class), and `methods` are those it is about. `own` judges the user's runs, `like` near evidence on the
    same kind of data."""

    clients: int
    classes: int
    classes_held: int
    samples: int
    sizes: list[int]
    skew: dict[str, float]
    kind: str
    nearest: float | None
    do: str
    methods: list[str]
    own: list[Row]
    like: list[Row]
    evidence: list[Evidence]

    def gain(self, row: Row, number: int | None = None) -> tuple[Evidence, Gain]:
        """A method in a setting, or in its best."""
        item = self.evidence[(number or row.best) - 1]
        return item, next(gain for gain in item.gains if gain.method == row.method)

    @property
    def basis(self) -> list[Row]:
        """The rows that support what to do."""
        rows = [row for row in (*self.own, *self.like) if row.stands == self.do]
        return [row for row in rows if row.algorithm in self.methods or self.do == "keep"]


def advise(
    counts: Ints, table: Mapping[str, Any], own: Sequence[Setting] = (), kind: str = UNKNOWN, **wanted: float | None
) -> Advice:
    """From label counts, published evidence, settings of the user's own runs and the kind of the data. `wanted` keeps
    settings with these values (local_epochs, momentum)."""
    classes, skew, sizes = int((counts.sum(0) > 0).sum()), skew_indices(counts), counts.sum(1).tolist()
    here = scaled(skew, classes)
    asked = {name: value for name, value in wanted.items() if value is not None}.items()
    mine = [_evidence(s, here, here, own=True) for s in own if asked <= s.items()]
    known = [_evidence(s, here, _mean_skew(s, table)) for s in table["settings"] if asked <= s.items()]
    found = sorted((item for item in known if item.gains), key=lambda item: item.distance)
    near = [item for item in found if item.distance <= NEAR]
    shown = near or [item for item in found if item.distance <= FAR and item.cell == found[0].cell]
    shown.sort(key=lambda item: (item.kind != kind, len(item.base.seeds) == 1))
    numbered = [replace(item, number=number) for number, item in enumerate([*mine, *shown], 1)]
    ours = judge([item for item in numbered if item.own])
    like = judge([i for i in numbered if not i.own and i.kind == kind != UNKNOWN and i.distance <= NEAR])
    do, methods = decide(ours, like) if min(len(counts), classes) > 1 else ("nothing", [])
    if do != "nothing" and not ours and skew["mean_total_variation"] < EVEN:
        do, methods = "even", []
    if do in ("keep", "unknown"):
        methods = to_try([*mine, *found], kind, {row.algorithm for row in (*ours, *like) if row.stands == "keep"})
    about = (len(counts), counts.shape[1], classes, sum(sizes), [min(sizes), max(sizes)], skew, kind)
    return Advice(*about, found[0].distance if found else None, do, methods, ours, like, numbered)


def decide(own: Sequence[Row], like: Sequence[Row]) -> tuple[str, list[str]]:
    """What to do, and with which methods. The user's own runs count before published ones."""
    settled = {row.algorithm for row in own if row.stands == "keep"}
    others = [row for row in like if row.algorithm not in settled]
    for do in ("use", "depends"):
        for rows in (own, others):
            if chosen := [row.algorithm for row in rows if row.stands == do]:
                return do, chosen[:MOST]
    return "keep" if {row.stands for row in (*own, *others)} == {"keep"} else "unknown", []


def to_try(found: Sequence[Evidence], kind: str, settled: set[str]) -> list[str]:
    """Methods that change different parts of a round: first those that several seeds put above FedAvg under similar
    skew, then those that gained on the user's own split, on data of this kind, anywhere, those without evidence, and
    last those that lost."""

    def promise(name: str) -> tuple[bool, float, int, float]:
        verdicts = [
            gain.verdict for item in found if item.distance <= FAR for gain in item.gains if gain.method == name
        ]
        decided = verdicts.count("above") > verdicts.count("below")
        here = [(item, gain.mean) for item in found for gain in item.gains if gain.method == name and gain.points]
        groups = [[m for i, m in here if i.own], [m for i, m in here if i.kind == kind], [m for _, m in here]]
        medians = [(-tier, statistics.median(group)) for tier, group in enumerate(groups) if group]
        tier, gain = medians[0] if medians else (0, 0.0)
        return decided, float(np.sign(gain)), tier, gain

    chosen, taken = list[str](), set[str]()
    for method in sorted(describe(), key=lambda method: promise(method.name), reverse=True):
        weighted = ALGORITHMS[method.name]().aggregate.linear  # others need weighting=uniform
        if weighted and method.sets and method.name not in settled and not taken & set(method.sets):
            chosen.append(method.name)
            taken |= set(method.sets)
    return chosen[:MOST]


def judge(found: Sequence[Evidence]) -> list[Row]:
    """Each method over these settings, sorted by the lower end of its best interval, highest first."""
    at: dict[str, list[tuple[Evidence, Gain]]] = {}
    for item in found:
        for gain in item.gains:
            at.setdefault(gain.method, []).append((item, gain))
    ranked = []
    for method, pairs in at.items():
        numbers = {word: [item.number for item, gain in pairs if gain.verdict == word] for word in VERDICTS}
        settings = {word: found for word, found in numbers.items() if found}
        item, gain = max(pairs, key=lambda pair: (pair[1].verdict == "above", pair[1].least))
        diverged = [item.number for item, gain in pairs if gain.diverged]
        gained = "depends" if diverged or "below" in settings else "use"
        missed = "open" if {OPEN, NOT_DECIDED} & settings.keys() else "keep"
        stands = gained if "above" in settings else missed
        ranked.append((gain, Row(method, gain.algorithm, stands, settings, diverged, item.number)))
    return [row for gain, row in sorted(ranked, key=lambda one: (one[0].verdict != "above", -one[0].least))]


def scaled(skew: Mapping[str, float], classes: int) -> dict[str, float]:
    """The indices, each between 0 and 1: effective classes as a share of the number of classes."""
    return {**skew, "effective_classes": skew["effective_classes"] / classes}


def distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Mean absolute difference of the four scaled indices."""
    return statistics.fmean(abs(a[name] - b[name]) for name in a)


def _mean_skew(setting: Setting, table: Mapping[str, Any]) -> dict[str, float]:
    cards = [table["partitions"][name] for name in setting["methods"][BASELINE]["partitions"]]
    rows = [scaled(card["skew"], card["classes"]) for card in cards]
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def _evidence(setting: Setting, here: Mapping[str, float], skew: dict[str, float], *, own: bool = False) -> Evidence:
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
    return Evidence(0, own, cell, kind, distance(here, skew), skew, setting, base, ordered)


def _held_out(method: Mapping[str, Any]) -> float:
    values = [value for value in method["held_out"] if value is not None]
    return statistics.fmean(values) if values and None not in method["accuracy"] else 0.0


def _gain(family: str, name: str, methods: Mapping[str, Any]) -> Gain:
    """Paired by seed: both runs had the same data, split, initial model and cohorts."""
    mine, base = (_by_seed(methods[one]) for one in (name, BASELINE))
    alike = [s for s in mine if s in base and mine[s][2] == base[s][2]]
    points = paired(*({s: _percent(one[s][0]) for s in alike} for one in (mine, base)))
    seeds = [s for s in alike if None not in (mine[s][0], base[s][0])]
    saved = paired(*({s: one[s][1] for s in seeds if one[s][1] is not None} for one in (base, mine)))
    accuracy = statistics.fmean(100 * mine[s][0] for s in seeds) if seeds else None
    diverged = [seed for seed, (reached, *_) in mine.items() if reached is None]
    return Gain(family, name, points, saved, points.verdict if points else None, accuracy, seeds, diverged)


def _percent(accuracy: float | None) -> float | None:
    return None if accuracy is None else round(100 * accuracy, 4)


def _by_seed(method: Mapping[str, Any]) -> dict[int, tuple[Any, Any, Any]]:
    """Accuracy over the last ten rounds, rounds to FedAvg's end, and the split, of each seed."""
    rows = zip(method["accuracy"], method["reach"], method["partitions"], strict=True)
    return dict(zip(method["seeds"], rows, strict=True))
