"""What FedLC's gain over FedAvg depends on: momentum, crops and mirror images, rounds, the rule for missing classes."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.pages.claims import by_seed, listed, named, seeds, span
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

    def gain_with(self, other: "Measured") -> Difference | None:
        """The gain over the seeds that another setting has as well."""
        mine, base = (by_seed(self.ours[method]) for method in ("fedlc", "fedavg"))
        return paired({seed: mine[seed] for seed in by_seed(other.ours["fedlc"]) if seed in mine}, base)

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


def together(found: Sequence[Measured], one: Setting, other: Setting) -> dict[str, tuple[Difference, Difference]]:
    """FedLC's gains under two settings, in each cell that has both, over the seeds that they have in common."""
    pairs = [(a, b) for a in found for b in found if a.cell == b.cell and (a.setting, b.setting) == (one, other)]
    gains = {a.cell: (a.gain_with(b), b.gain_with(a)) for a, b in pairs}
    return {cell: (first, second) for cell, (first, second) in gains.items() if first and second}


def section(results: Results) -> Iterator[str]:
    """The first section of the page; nothing if nothing was run."""
    found = measured(results)
    if not found:
        return
    yield "## What FedLC's gain depends on"
    yield "\n".join(f"- {line}" for line in [*_sentences(found), *_baseline(found), *_missing(results)])
    heads = ("CIFAR-10", "trained with", "rounds", "FedAvg", "FedLC", "FedLC against FedAvg", "rounds to FedAvg's end")
    yield "\n".join(as_markdown(heads, [one.row() for one in found]))
    yield (
        "Accuracies are means of the last ten rounds. The last column is the first evaluated round in which FedLC "
        "reaches FedAvg's final accuracy, as the median over seeds."
    )


def _sentences(found: Sequence[Measured]) -> Iterator[str]:
    """Gains over the cells and seeds that two settings have in common."""
    plain, short, long, usual, longer = SETTINGS
    for what, one, other in (
        ("Momentum", plain, long),
        ("Rounds, with momentum only", short, long),
        ("Rounds, with momentum, crops and mirror images", usual, longer),
        ("Crops and mirror images, with momentum", long, longer),
    ):
        if pairs := together(found, one, other).values():
            first, second = (span([pair[i].mean for pair in pairs], "+.1f") for i in (0, 1))
            if one.name == other.name:
                told = f"{first} points after {one.rounds} rounds and {second} after {other.rounds}"
            else:
                told = f"{first} points with {one.name} ({one.rounds} rounds) and {second} with {other.name}"
                told += f" ({other.rounds} rounds)"
            common = seeds(gain for gain, _ in pairs)
            yield f"{what}: FedLC gains {told}, in {len(pairs)} of the cells below ({common} in common)."


def _baseline(found: Sequence[Measured]) -> Iterator[str]:
    """What FedAvg itself reaches under each setting, since a gain over it can be its own loss."""
    told = []
    for setting in SETTINGS:
        means = [statistics.fmean(_known(o, "fedavg", found).values()) for o in found if o.setting == setting]
        if len(means) == len(CELLS):
            told.append(f"{listed(f'{mean:.1f}' for mean in means)} % with {setting.name} ({setting.rounds} rounds)")
    if len(told) > 1:
        yield f"FedAvg itself, at {listed(map(named, CELLS))} with the seeds that all have: {'; '.join(told)}."
    if gains := against_best(found):
        yield (
            f"Against the best FedAvg of each cell, however it was trained, FedLC with {SETTINGS[-1].name} gains "
            f"{span([gain.mean for gain in gains.values()], '+.1f')} points after {SETTINGS[-1].rounds} rounds "
            f"({seeds(gains.values())})."
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
    told = []
    for setting, rule, best, plain in chosen_margins(rows):
        if not (best["diverged"] or plain["diverged"]):
            told.append(f"{setting}, `missing={rule}` {best['last_ten'] - plain['last_ten']:+.1f}")
    if told:
        yield (
            f"The rule for classes that a client does not have, at {CELL}, points over FedAvg with the tau that is "
            f"best on held-out examples, one seed each: {'; '.join(told)}."
        )
