"""What FedLC's gain over FedAvg depends on: momentum, crops and mirror images, rounds, the rule for missing classes."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.pages.claims import by_seed, many, named, points, seeds, span
from fedskew.paper import mapped
from fedskew.paper.choice import Choice
from fedskew.paper.map import Map
from fedskew.paper.map_text import chosen_margins
from fedskew.paper.profiles import PROFILES, Profile
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Reach
from fedskew.runs.results import Results
from fedskew.runs.verdict import Difference, paired

CELLS = ("cifar10/dirichlet:0.05", "cifar10/dirichlet:0.1", "cifar10/shards:2")
"""The most skewed cells."""
_MOMENTUM = Profile("momentum", "momentum 0.9 alone", {"momentum": 0.9})


@dataclass(frozen=True)
class Setting:
    """How to train, and for how long."""

    name: str
    profile: Profile
    rounds: int


SETTINGS = (
    Setting("no momentum", PROFILES["stated"], 400),
    Setting("momentum 0.9", _MOMENTUM, 120),
    Setting("momentum 0.9", _MOMENTUM, 400),
    Setting("momentum 0.9, crops and mirror images", PROFILES["usual"], 200),
    Setting("momentum 0.9, crops and mirror images", PROFILES["usual"], 400),
)


@dataclass(frozen=True)
class Measured:
    """FedAvg and FedLC in a cell under a setting."""

    cell: str
    setting: Setting
    ours: Mapping[str, Mapping[str, Any]]

    @property
    def gain(self) -> Difference:
        return Difference(**self.ours["fedlc"]["gain"])

    def row(self) -> list[str]:
        accuracies = [f"{self.ours[method]['last_ten']:.2f}" for method in ("fedavg", "fedlc")]
        reach = str(Reach(**self.ours["fedlc"]["rounds_to_reach"]))
        return [named(self.cell), self.setting.name, str(self.setting.rounds), *accuracies, str(self.gain), reach]


def measured(results: Results) -> list[Measured]:
    """Every cell under every setting in which both methods were run, over the seeds that both have."""
    found = []
    for cell in CELLS:
        for setting in SETTINGS:
            choice = Choice((cell,), ("fedavg", "fedlc"), rounds=setting.rounds, profile=setting.profile)
            ours = {row["method"]: row["ours"] for row in mapped(cell).rows(results, choice) if row["ours"]}
            if len(ours) == 2 and ours["fedlc"]["gain"]:
                found.append(Measured(cell, setting, ours))
    return found


def section(results: Results) -> Iterator[str]:
    """The first section of the page; nothing if nothing was run."""
    found = measured(results)
    if not found:
        return
    yield "## What FedLC's gain depends on"
    yield from _by_setting(found)


def detail(results: Results) -> Iterator[str]:
    """The same cell by cell, and the rule for classes that a client does not have; nothing if nothing was run."""
    found = measured(results)
    if not found:
        return
    yield "## Momentum, crops and rounds, cell by cell"
    heads = ("CIFAR-10", "trained with", "rounds", "FedAvg", "FedLC", "FedLC against FedAvg", "rounds to FedAvg's end")
    yield "\n".join(as_markdown(heads, [one.row() for one in found]))
    yield (
        "Accuracies are means of the last ten rounds. The last column is the first evaluated round in which FedLC "
        "reaches FedAvg's final accuracy, as the median over seeds."
    )
    yield from _missing(results)


def _by_setting(found: Sequence[Measured]) -> Iterator[str]:
    """What FedAvg itself reaches under each setting, since a gain over it can be its own loss, and what FedLC gains."""
    rows, common = [], set[int]()
    for setting in SETTINGS:
        there = [one for one in found if one.setting == setting]
        known = [[_known(one, method, found) for method in ("fedlc", "fedavg")] for one in there]
        gains = [gain for mine, base in known if (gain := paired(mine, base))]
        if len(gains) == len(CELLS):
            base = [f"{statistics.fmean(of.values()):.1f}" for _, of in known]
            rows.append([setting.name, str(setting.rounds), *base, span([gain.mean for gain in gains], "+.1f")])
            common |= {gain.seeds for gain in gains}
    if rows:
        yield (
            "What FedAvg reaches in percent, and what FedLC gains over it, by how clients train; with the seeds that "
            f"all settings have ({many([*common])}):"
        )
        heads = ["trained with", "rounds", *(f"FedAvg at {named(cell)}" for cell in CELLS), "FedLC gains, points"]
        yield "\n".join(as_markdown(heads, rows))
    if best := against_best(found):
        yield (
            f"Against the best FedAvg of each cell in this table, FedLC with {SETTINGS[-1].name} gains "
            f"{points(best)} points after {SETTINGS[-1].rounds} rounds ({seeds(best.values())})."
        )


def against_best(found: Sequence[Measured]) -> dict[str, Difference]:
    """FedLC with the last setting minus the FedAvg that did best, in each cell, over the seeds that all settings of the
    cell have; nothing for a cell with that setting alone."""
    gains = {}
    for mine in (one for one in found if one.setting == SETTINGS[-1]):
        plain = [_known(one, "fedavg", found) for one in found if one.cell == mine.cell]
        best = max(plain, key=lambda of: statistics.fmean(of.values()))
        if len(plain) > 1 and (gain := paired(_known(mine, "fedlc", found), best)):
            gains[mine.cell] = gain
    return gains


def _known(one: Measured, method: str, found: Sequence[Measured]) -> dict[int, float]:
    """What a method reached, with the seeds that all settings of its cell have; the first seed is always one."""
    seeds = [by_seed(other.ours[name]).keys() for other in found if other.cell == one.cell for name in other.ours]
    mine = by_seed(one.ours[method])
    return {seed: mine[seed] for seed in set.intersection(*map(set, seeds))}


def _missing(results: Results) -> Iterator[str]:
    """The rule for classes that a client does not have, each with the best margin on held-out examples."""
    rows = Map(mapped(CELL), CELL).rows(results, Choice())
    told = [
        [setting, f"`missing={rule}`", f"{best['last_ten'] - plain['last_ten']:+.1f}"]
        for setting, rule, best, plain in chosen_margins(rows)
        if not (best["diverged"] or plain["diverged"])
    ]
    if told:
        yield (
            f"The rule for classes that a client does not have, at {named(CELL)} with the tau that is best on held-out "
            "examples, one seed each:"
        )
        yield "\n".join(as_markdown(["trained with", "rule", "FedLC gains, points"], told))
