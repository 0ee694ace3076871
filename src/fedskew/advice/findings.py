"""Which methods are worth trying on a federation, from its label counts and from published runs under similar skew."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedskew.advice.evidence import BASE
from fedskew.core.spec import family
from fedskew.partition.cards import skew_indices
from fedskew.partition.owners import Ints
from fedskew.runs.verdict import NOT_DECIDED, paired

NEAR = 0.1
"""Evidence up to this distance is near. Two seeds of one Dirichlet setting can be as far apart."""
FAR = 0.25
"""Beyond this distance nothing is concluded."""


@dataclass(frozen=True)
class Gain:
    """A method against FedAvg in one setting, in points of accuracy, over the seeds that both have: `mean` ± `half` and
    its `verdict` for the last ten rounds, `last` for the last one.

    `why` says how this variant of the method was chosen, `others` has the rest, best first. Both are empty for a method
    with one variant.
    """

    method: str
    algorithm: str
    mean: float | None
    half: float | None
    verdict: str | None
    last: float | None
    accuracy: float | None
    seeds: list[int]
    diverged: list[int]
    runs: list[str]
    why: str = ""
    others: tuple["Gain", ...] = ()


@dataclass(frozen=True)
class Evidence:
    """A setting with FedAvg's accuracy in percent and the methods that were compared to it, best first."""

    number: int
    cell: str
    distance: float
    setting: dict[str, Any]
    shortened: bool
    partitions: list[str]
    skew: dict[str, float]
    base: Gain
    gains: list[Gain]


def scaled(skew: Mapping[str, float], classes: int) -> dict[str, float]:
    """The indices, each between 0 and 1: effective classes as a share of the classes there are."""
    return {**skew, "effective_classes": skew["effective_classes"] / classes}


def distance(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Mean absolute difference of the four scaled indices."""
    return statistics.fmean(abs(a[name] - b[name]) for name in a)


def advise(counts: Ints, table: Mapping[str, Any], **wanted: float | None) -> dict[str, Any]:
    """All there is to say, ready for JSON. `wanted` keeps settings with these values (local_epochs, momentum)."""
    held = counts[:, counts.sum(0) > 0]
    classes = held.shape[1]
    skew = skew_indices(counts)
    found = collect(scaled(skew, classes), table, {k: v for k, v in wanted.items() if v is not None})
    near = [item for item in found if item.distance <= NEAR]
    used = [replace(item, number=number) for number, item in enumerate(near or _nearest(found), 1)]
    judged = judge(used) if min(counts.shape[0], classes) > 1 else []
    return {
        "clients": len(counts),
        "classes": counts.shape[1],
        "classes_held": classes,
        "samples": int(counts.sum()),
        "sizes": [int(counts.sum(1).min()), int(counts.sum(1).max())],
        "skew": skew,
        "near": bool(near),
        "nearest": found[0].distance if found else None,
        "evidence": [asdict(item) for item in used],
        "methods": judged,
    }


def collect(skew: Mapping[str, float], table: Mapping[str, Any], wanted: Mapping[str, float]) -> list[Evidence]:
    """Every setting of the table as evidence, the nearest first. Numbers are for what is shown of it."""
    chosen = [s for s in table["settings"] if all(s[name] == value for name, value in wanted.items())]
    at = [(_distance(skew, setting, table["partitions"]), setting) for setting in chosen]
    ordered = sorted(at, key=lambda pair: (pair[0], _short(pair[1]), -pair[1]["rounds"]))
    found = [_evidence(far, setting, table["partitions"]) for far, setting in ordered]
    return [item for item in found if item.gains]


def judge(found: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Each method on each data set: in which settings it was above FedAvg, below it, tied with it, or run with one seed
    only, which decides nothing. The nearest data set is first, and on it the method most often above.

    `best` is the setting in which it reached the highest accuracy, of those where it was above if there are any.
    """
    order = {"worth trying": 0, "depends": 1, NOT_DECIDED: 2, "no gain": 3}
    rows = []
    for data in dict.fromkeys(_data(item) for item in found):
        here = [item for item in found if _data(item) == data]
        names = dict.fromkeys(gain.method for item in here for gain in item.gains)
        judged = [{"data": data, **_judged(name, here)} for name in names]
        rows += sorted(judged, key=lambda row: (order[row["verdict"]], -len(row["above"]), -(row["mean"] or 0.0)))
    return rows


def _data(item: Evidence) -> str:
    """The data set without its options: Synthetic is one."""
    return str(item.setting["dataset"]).partition(":")[0]


def _judged(name: str, found: Sequence[Evidence]) -> dict[str, Any]:
    at = [(item, gain) for item in found for gain in item.gains if gain.method == name]
    above, below, tied, single = (
        [item.number for item, gain in at if gain.verdict == word] for word in ("above", "below", "tied", NOT_DECIDED)
    )
    diverged = [item.number for item, gain in at if gain.diverged]
    means = [gain.mean for _, gain in at if gain.mean is not None]
    best = max(at, key=lambda pair: (pair[0].number in above, pair[1].accuracy or 0.0))
    gained, open_ = "depends" if below or diverged else "worth trying", NOT_DECIDED if single else "no gain"
    return {
        "method": name,
        "algorithm": best[1].algorithm,
        "verdict": gained if above else open_,
        "mean": statistics.fmean(means) if means else None,
        "lowest": min(means, default=None),
        "highest": max(means, default=None),
        "settings": len(at),
        "above": above,
        "below": below,
        "tied": tied,
        "one_seed": single,
        "diverged": diverged,
        "best": best[0].number,
        "most_seeds": max(len(gain.seeds) for _, gain in at),
    }


def _nearest(found: Sequence[Evidence]) -> list[Evidence]:
    """The nearest cell, if it is close enough to say something."""
    return [item for item in found if item.distance <= FAR and item.cell == found[0].cell]


def _short(setting: Mapping[str, Any]) -> bool:
    return setting["full_rounds"] is not None and setting["rounds"] < setting["full_rounds"]


def _mean_skew(setting: Mapping[str, Any], partitions: Mapping[str, Any]) -> dict[str, float]:
    cards = [partitions[name] for name in setting["methods"][BASE]["partitions"]]
    rows = [scaled(card["skew"], card["classes"]) for card in cards]
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def _distance(skew: Mapping[str, float], setting: Mapping[str, Any], partitions: Mapping[str, Any]) -> float:
    return distance(skew, _mean_skew(setting, partitions))


def _evidence(far: float, setting: Mapping[str, Any], partitions: Mapping[str, Any]) -> Evidence:
    methods = setting["methods"]
    gains = [_family(family, names, methods) for family, names in _families(methods).items()]
    split = "" if setting["partition"] == "natural" else f"/{setting['partition']}"
    return Evidence(
        number=0,
        cell=f"{setting['dataset']}{split}",
        distance=far,
        setting={name: value for name, value in setting.items() if name != "methods"},
        shortened=_short(setting),
        partitions=methods[BASE]["partitions"],
        skew=_mean_skew(setting, partitions),
        base=_gain(BASE, BASE, methods[BASE], methods[BASE]),
        gains=_ranked(gain for gain in gains if gain.seeds or gain.diverged),
    )


def _ranked(gains: Iterable[Gain]) -> list[Gain]:
    return sorted(gains, key=lambda gain: float("inf") if gain.mean is None else -gain.mean)


def _families(methods: Mapping[str, Any]) -> dict[str, list[str]]:
    """Variants by method, without FedAvg's."""
    families: dict[str, list[str]] = {}
    for name in methods:
        families.setdefault(family(name), []).append(name)
    return {name: names for name, names in families.items() if name != BASE}


def _family(family: str, names: Sequence[str], methods: Mapping[str, Any]) -> Gain:
    """A method by one of its variants: the best on held-out examples, else the one with our defaults."""
    gains = {name: _gain(family, name, methods[name], methods[BASE]) for name in names}
    best = max(names, key=lambda name: (_held_out(methods[name]), name == family))
    others = _ranked(gain for name, gain in gains.items() if name != best)
    return replace(gains[best], why=_why(family, best, methods) if others else "", others=tuple(others))


def _why(family: str, best: str, methods: Mapping[str, Any]) -> str:
    if _held_out(methods[best]) > 0:
        return "best on held-out examples"
    return f"{'our default' if best == family else 'our default did not run'}; nothing was held out"


def _held_out(method: Mapping[str, Any]) -> float:
    values = [value for value in method["held_out"] if value is not None]
    return statistics.fmean(values) if values and None not in method["accuracy"] else 0.0


def _gain(family: str, name: str, method: Mapping[str, Any], base: Mapping[str, Any]) -> Gain:
    """Paired by seed: both runs had the same data, split, first model and cohorts."""
    mine, theirs = _by_seed(method), _by_seed(base)
    seeds = [s for s in mine if s in theirs and None not in (*mine[s], *theirs[s]) and mine[s][2] == theirs[s][2]]
    found = paired(*({s: round(100 * one[s][0], 4) for s in seeds} for one in (mine, theirs)))
    return Gain(
        method=family,
        algorithm=name,
        mean=None if found is None else found.mean,
        half=None if found is None else found.half,
        verdict=None if found is None else found.verdict,
        last=statistics.fmean(round(100 * (mine[s][1] - theirs[s][1]), 4) for s in seeds) if seeds else None,
        accuracy=statistics.fmean(100 * mine[s][0] for s in seeds) if seeds else None,
        seeds=seeds,
        diverged=[seed for seed, (accuracy, *_) in mine.items() if accuracy is None],
        runs=list(method["runs"]),
    )


def _by_seed(method: Mapping[str, Any]) -> dict[int, tuple[Any, Any, Any]]:
    """Accuracy over the last ten rounds and in the last one, and the split, of each seed."""
    rows = zip(method["accuracy"], method["last"], method["partitions"], strict=True)
    return dict(zip(method["seeds"], rows, strict=True))
