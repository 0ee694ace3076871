"""Which methods help on a federation, according to the user's own runs on its split and to published runs under similar
skew.

One order for everything: the user's own runs, the same data set, other data of its kind; there the nearest skew, in
one's own runs the longest; there what several seeds decide. What comes first speaks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fedskew.advice.gains import (
    CLOSENESS,
    KIND,
    OTHER,
    SAME,
    Evidence,
    Gain,
    Pair,
    Setting,
    ahead,
    evidence_of,
    mean_skew,
    scaled,
)
from fedskew.advice.kinds import UNKNOWN, kind_of
from fedskew.algorithms import describe
from fedskew.core import spec
from fedskew.data import resolve_dataset
from fedskew.partition.cards import skew_indices
from fedskew.partition.owners import Ints
from fedskew.runs.verdict import CLOSE, NOT_DECIDED, OPEN, VERDICTS, Difference

NEAR = 0.1
"""Evidence up to this distance is near. Two seeds of one Dirichlet setting can be as far apart."""
FAR = 0.25
"""Evidence beyond this distance is not shown."""
SHORT = 10
"""Runs of the user's own with so few rounds recommend nothing if there are longer runs."""
MOST = 3
"""How many methods besides FedAvg are recommended, or suggested to try."""
EVEN = 0.05
"""Below this mean total variation labels are hardly skewed; 20 IID clients of 2,500 examples have about 0.02."""


@dataclass(frozen=True)
class Row:
    """A method over several settings: the numbers of those with each verdict, and of those where a seed diverged.
    `ranked` is the setting that speaks for it. It `stands` for use (above there, nowhere below or diverged), depends
    (above there, elsewhere below or diverged), open, or keep (it is known not to help there, so keep FedAvg)."""

    method: str
    algorithm: str
    stands: str
    settings: dict[str, list[int]]
    diverged: list[int]
    ranked: int


@dataclass(frozen=True)
class Better:
    """A method that is above the first recommended one in the setting that speaks for that one."""

    algorithm: str
    ahead: Difference


@dataclass(frozen=True)
class Advice:
    """The whole advice. `do` is use, depends, keep (FedAvg), unknown, even (hardly any skew), or nothing (one
    client or one class), and `chosen` are the methods to use or to try. `own` judges the user's runs, `like` near
    evidence on the same data set and, for methods that did not run on it, on the same kind of data. `better` are
    above the first of the chosen: FedAvg can vary so much that it is open whether they are above it."""

    clients: int
    classes: int
    classes_held: int
    samples: int
    sizes: list[int]
    skew: dict[str, float]
    kind: str
    nearest: float | None
    do: str
    chosen: list[Row]
    own: list[Row]
    like: list[Row]
    evidence: list[Evidence]
    better: list[Better] = field(default_factory=list)

    @property
    def methods(self) -> list[str]:
        return [row.algorithm for row in self.chosen]

    def gain(self, row: Row, number: int | None = None) -> tuple[Evidence, Gain]:
        """A method in a setting, or in the one it is ranked in."""
        item = self.evidence[(number or row.ranked) - 1]
        return item, next(gain for gain in item.gains if gain.method == row.method)

    def ahead(self, row: Row, other: Row) -> Difference | None:
        """How far a method is ahead of another in the setting that speaks for the other, if both count there."""
        item, gain = self.gain(other)
        counts = row.algorithm in {one.algorithm for one in item.gains}
        return ahead(row.algorithm, gain.algorithm, item.setting["methods"]) if counts else None

    @property
    def tried(self) -> list[str]:
        """The methods to use or to try, and those above them."""
        return list(dict.fromkeys([*self.methods, *(one.algorithm for one in self.better)]))

    @property
    def own_rounds(self) -> int:
        """The length of the user's longest runs that are judged; 0 without any."""
        return max((self.gain(row)[0].rounds for row in self.own), default=0)

    @property
    def own_counts(self) -> bool:
        """Whether the user's runs are long enough to count: others on such data are longer than short ones."""
        return self.own_rounds > SHORT or not self.like

    @property
    def counted(self) -> list[Row]:
        """The methods of the user's runs, if these count."""
        return self.own if self.own_counts else []


def advise(
    counts: Ints,
    table: Mapping[str, Any],
    own: Sequence[Setting] = (),
    kind: str = UNKNOWN,
    dataset: str | None = None,
    **wanted: float | None,
) -> Advice:
    """From label counts, published evidence, settings of the user's own runs, the kind of the data and the data set.
    `wanted` keeps settings with these values (local_epochs, momentum)."""
    classes, skew, sizes = int((counts.sum(0) > 0).sum()), skew_indices(counts), counts.sum(1).tolist()
    here = scaled(skew, classes)
    asked = {name: value for name, value in wanted.items() if value is not None}.items()
    mine = [evidence_of(s, here, here, SAME, own=True) for s in own if asked <= s.items()]
    named = _named(dataset, {s["dataset"] for s in table["settings"]})
    known = [evidence_of(s, here, mean_skew(s, table), _data(s, named, kind)) for s in table["settings"]
             if asked <= s.items()]  # fmt: skip
    found = sorted((item for item in known if item.gains), key=lambda item: (CLOSENESS.index(item.data), item.distance))
    near = [item for item in found if item.distance <= NEAR]
    far = [item for item in found if item.distance <= FAR]
    shown = near or [item for item in far if item.cell == far[0].cell]
    shown.sort(key=lambda item: item.rank)
    mine.sort(key=lambda item: -item.rounds)
    numbered = [replace(item, number=number) for number, item in enumerate([*mine, *shown], 1)]
    ours = judge(_longer([item for item in numbered if item.own]), len(counts))
    same, kin, other = (
        judge([item for item in numbered if _is_of(item, data) and not item.own], len(counts)) for data in CLOSENESS
    )
    ran = {row.method for row in same}
    kin = [row for row in kin if row.method not in ran]
    nearest = min((item.distance for item in found), default=None)
    about = (len(counts), counts.shape[1], classes, sum(sizes), [min(sizes), max(sizes)], skew, kind, nearest)
    advice = Advice(*about, "nothing", [], ours, [*same, *kin], numbered)
    if min(len(counts), classes) == 1:
        return advice
    if not ours and skew["mean_total_variation"] < EVEN:
        return replace(advice, do="even")
    do, standing = decide(advice.counted, same, kin)
    if do in ("keep", "unknown"):
        return replace(advice, do=do, chosen=to_try(advice, [advice.counted, same, kin, other, ours]))
    chosen = _few(_as_good(advice, standing))
    return replace(advice, do=do, chosen=chosen, better=_better(advice, chosen))


def _named(dataset: str | None, names: Iterable[str]) -> set[str]:
    """Those of the names that are the user's data set; without any, those that differ only in its arguments."""
    alike = {name for name in names if spec.name_in(name) == spec.name_in(dataset or "")}
    return {name for name in alike if dataset in (name, resolve_dataset(name).text)} or alike


def _data(setting: Setting, named: set[str], kind: str) -> str:
    if kind_of(setting["dataset"], setting["model"]) != kind or kind == UNKNOWN:
        return OTHER
    return SAME if setting["dataset"] in named else KIND


def _is_of(item: Evidence, data: str) -> bool:
    """Evidence that is not near is like other data, whatever its own."""
    return data == (item.data if item.distance <= NEAR else OTHER)


def _longer(own: Sequence[Evidence]) -> Sequence[Evidence]:
    """Without short runs, if there are others."""
    return [item for item in own if item.rounds > SHORT] or own


def decide(own: Sequence[Row], same: Sequence[Row], kin: Sequence[Row]) -> tuple[str, list[Row]]:
    """What to do, and with which methods. Other data of the kind recommend nothing if there are runs on the same data
    set, and no method that the user has tried."""
    settled = {row.algorithm for row in own if row.stands != "open" or not same}
    others = [row for row in same or kin if row.algorithm not in settled]
    for do in ("use", "depends"):
        for rows in (own, others):
            if stand := [row for row in rows if row.stands == do]:
                return do, stand
    return "keep" if {row.stands for row in (*own, *others)} == {"keep"} else "unknown", []


def _as_good(advice: Advice, rows: Sequence[Row]) -> list[Row]:
    """Without those that are worse than an earlier one, unless that one has a readout and they have none."""
    kept = list[Row]()
    for row in rows:
        rivals = (one for one in kept if has_readout(one.algorithm) <= has_readout(row.algorithm))
        if not any(_is_worse(advice, row, one) for one in rivals):
            kept.append(row)
    return kept


def _is_worse(advice: Advice, row: Row, other: Row) -> bool:
    """Below it in the setting that speaks for it; where that is open, with a whole interval of gains below its own."""
    gap, (item, gain) = advice.ahead(row, other), advice.gain(other)
    if gap and gap.verdict not in (OPEN, NOT_DECIDED):
        return gap.verdict == "below"
    mine = next((one.points for one in item.gains if one.algorithm == row.algorithm and one.has_interval), None)
    return mine is not None and mine.most < gain.least


def _better(advice: Advice, chosen: Sequence[Row]) -> list[Better]:
    """Methods that are above the first of the chosen ones, and in no setting below FedAvg or diverged; the surest
    first. Of a method that the user has run, these runs count."""
    mine = {row.algorithm for row in advice.counted}
    rows = [*advice.counted, *(row for row in advice.like if row.algorithm not in mine)]
    sound = [row for row in rows if row.stands in ("use", "open") and "below" not in row.settings and not row.diverged]
    gaps = [(row, gap) for row in sound if (gap := advice.ahead(row, chosen[0])) and gap.verdict == "above"]
    gaps.sort(key=lambda pair: -pair[1].least)
    return [Better(row.algorithm, gap) for row, gap in gaps[:MOST]]


def to_try(advice: Advice, groups: Sequence[Sequence[Row]]) -> list[Row]:
    """Of each group in turn first methods that several seeds put above FedAvg, then undecided ones that are nowhere
    below it and are above it elsewhere or gained more than a change of seed could give. A method's first row counts,
    and no two methods change the same parts of a round."""
    order = ("use", "depends", "open", "keep")
    rows = [row for group in groups for stands in order for row in group if row.stands == stands]
    gained = [row for row in _first_by(lambda row: row.algorithm, rows) if _gained(advice, row)]
    return _few(_first_by(lambda row: _parts(row.algorithm), gained))


def _gained(advice: Advice, row: Row) -> bool:
    if row.stands == "open":
        return "below" not in row.settings and ("above" in row.settings or advice.gain(row)[1].mean >= CLOSE)
    return row.stands != "keep"


def _first_by(key: Callable[[Row], object], rows: Iterable[Row]) -> list[Row]:
    kept: dict[object, Row] = {}
    for row in rows:
        kept.setdefault(key(row), row)
    return list(kept.values())


def _few(rows: Sequence[Row]) -> list[Row]:
    """The first `MOST`, one of which has no readout if there is such a row."""
    first, rest = rows[: MOST - 1], rows[MOST - 1 :]
    if all(has_readout(row.algorithm) for row in first):
        rest = sorted(rest, key=lambda row: has_readout(row.algorithm))
    return [*first, *rest[:1]]


def has_readout(method: str) -> bool:
    """Whether the server fits the last layer (`refit`), and so learns more about label counts."""
    return "readout" in _parts(method)


@cache
def _parts(method: str) -> frozenset[str]:
    """The parts of a round that it changes; the user's own code changes one of its own."""
    known = {one.name: one.sets for one in describe()}
    return frozenset(part for text in method.split("+") for part in known.get(spec.name_in(text), (text,)))


def judge(found: Sequence[Evidence], clients: int) -> list[Row]:
    """Each method over these settings, by the nearest ones in which it has an interval. Methods are compared within
    one setting, never across: first those above FedAvg in the nearest split, in the setting with about as many clients
    that decides most, by the lower ends of their intervals, then those above it in the next. The others follow, those
    with an interval first, by their means in the setting that speaks for them."""
    order = {item.number: _place(item, clients) for item in found}
    at: dict[str, list[Pair]] = {}
    for item in found:
        for gain in item.gains:
            at.setdefault(gain.method, []).append((item, gain))
    farthest_first = sorted(found, key=lambda item: -item.distance)
    nearness = {item.split: item.distance for item in farthest_first}
    ranked = list[tuple[tuple[float, ...], Row]]()
    for method, pairs in at.items():
        numbers = {word: [item.number for item, gain in pairs if gain.verdict == word] for word in VERDICTS}
        settings = {word: found for word, found in numbers.items() if found}
        diverged = [item.number for item, gain in pairs if gain.diverged]
        lead = _lead(pairs)
        stands, speaking = _stands(lead, pairs)
        if stands in ("use", "depends"):
            item, gain = min(speaking, key=lambda pair: order[pair[0].number])
            place: tuple[float, ...] = (0, nearness[item.split], *order[item.number], -gain.least)
        else:
            item, gain = max(speaking, key=lambda pair: (pair[1].points is not None, len(pair[1].seeds)))
            place = (1, not lead, item.number, -gain.mean)
        ranked.append((place, Row(method, gain.algorithm, stands, settings, diverged, item.number)))
    return [row for _, row in sorted(ranked, key=lambda one: one[0])]


def _place(item: Evidence, clients: int) -> tuple[float, ...]:
    """Before others with the same split: longer runs of one's own, about as many clients, and what decides most."""
    longer, apart = -item.rounds if item.own else 0, abs(math.log(item.setting["clients"] / clients))
    return longer, apart, -sum(gain.is_decided for gain in item.gains), -len(item.gains), item.number


def _lead(pairs: Sequence[Pair]) -> list[Pair]:
    """The settings with the nearest split in which a method has an interval; of one's own runs the longest. Distances
    between draws of one split are chance."""
    known = [(item, gain) for item, gain in pairs if gain.has_interval]
    if not known:
        return []
    first = min((item for item, _ in known), key=lambda item: (-item.rounds if item.own else 0, item.distance))
    return [(i, gain) for i, gain in known if (i.rounds == first.rounds if i.own else i.split == first.split)]


def _stands(lead: Sequence[Pair], pairs: Sequence[Pair]) -> tuple[str, list[Pair]]:
    """For what a method stands, and the settings that say so."""
    by = {word: [pair for pair in lead if pair[1].verdict == word] for word in VERDICTS}
    if by["above"]:
        below = any(gain.verdict == "below" for item, gain in pairs if not item.own) or by["below"]
        return "depends" if below or any(gain.diverged for _, gain in pairs) else "use", by["above"]
    if by[OPEN]:
        return "open", by[OPEN]
    if lead:
        return "keep", by["below"] or by["tied"]
    unknown = [(item, gain) for item, gain in pairs if gain.verdict == NOT_DECIDED or gain.is_alone]
    return ("open", unknown) if unknown else ("keep", list(pairs))
