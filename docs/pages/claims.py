"""What the paper claims, cell by cell: FedLC against FedAvg, and the order of methods."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedskew.core.spec import name_in
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES, Profile
from fedskew.paper.table import Table
from fedskew.runs.results import Results
from fedskew.runs.verdict import VERDICTS, Difference, paired

_KINDS = {"dirichlet": "D", "shards": "Q"}
SMALL = 0.5
"""Points below which a verdict is told with its difference, since few would call it a gain."""


@dataclass(frozen=True)
class Claim:
    """A cell with FedAvg and FedLC. `ours` are the figures of every method that can be compared with FedLC, `printed`
    the paper's for the methods that were run."""

    cell: str
    full_rounds: int
    ours: Mapping[str, Mapping[str, Any]]
    printed: Mapping[str, float]

    @property
    def compared(self) -> bool:
        return {"fedavg", "fedlc"} <= set(self.ours)

    @property
    def seeds(self) -> int:
        return len(self.ours["fedlc"]["seeds"])

    @property
    def runs(self) -> tuple[str, ...]:
        return (*self.ours["fedavg"]["hashes"], *self.ours["fedlc"]["hashes"])

    def against(self, other: str, measure: str = "each_last_ten") -> Difference:
        """FedLC minus another method, by default in the mean of the last ten rounds."""
        found = paired(by_seed(self.ours["fedlc"], measure), by_seed(self.ours[other], measure))
        assert found is not None  # figures that are compared have a seed in common
        return found

    @property
    def printed_gain(self) -> float | None:
        both = {"fedavg", "fedlc"} <= set(self.printed)
        return self.printed["fedlc"] - self.printed["fedavg"] if both else None


@lru_cache(len(TABLES))  # every section of a page asks for all of them
def by_profile(name: str, results: Results) -> list[tuple[Profile, list[dict[str, Any]]]]:
    """The rows of a table under each profile. Where a table itself sets what two profiles differ in, both ask for the
    same runs; such a cell stays with the first profile."""
    table, told, found = TABLES[name], set[tuple[str, int]](), []
    for profile in PROFILES.values():
        rows = table.rows(results, Choice(profile=profile))
        ran = {
            (row["cell"], name, row["ours"]["rounds"]) for row in rows if row["ours"] for name in row["ours"]["hashes"]
        }
        again = {cell for cell, *run in ran if tuple(run) in told}
        told |= {(name, rounds) for _, name, rounds in ran}
        found.append((profile, [row for row in rows if row["cell"] not in again]))
    return found


def claims(table: Table, rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    for cell in dict.fromkeys(row["cell"] for row in rows):
        known = [row for row in rows if row["cell"] == cell and row["method"] in table.methods]
        at = {row["method"]: row for row in known if row["ours"]}
        if {"fedavg", "fedlc"} <= set(at):
            mine = at["fedlc"]["ours"]
            ours = {method: row["ours"] for method, row in at.items() if _comparable(row["ours"], mine)}
            printed = {method: row["printed"]["mean"] for method, row in at.items() if row["printed"]["mean"]}
            yield Claim(cell, table.full_rounds(cell), ours, printed)


DISTANCES = (
    "profile",
    "data",
    "settings",
    "rounds",
    "seeds",
    "FedLC against FedAvg",
    "FedLC − FedAvg, points",
    "in the paper",
    "our FedLC − the paper's",
    "our FedAvg − the paper's",
)


def in_short(results: Results, tables: Iterable[Table]) -> list[list[str]]:
    """FedLC against FedAvg on each data set and under each profile, as lines of a table with the columns `DISTANCES`;
    a run in two tables counts once."""
    found: dict[tuple[str, str], dict[tuple[str, ...], Claim]] = {}
    for table in tables:
        for profile, rows in by_profile(table.name, results):
            for claim in claims(table, rows):
                if claim.compared:
                    where = data_and_table(table, claim.ours["fedlc"]["dataset"])
                    found.setdefault((profile.name, where), {}).setdefault(claim.runs, claim)
    return [
        [f"`{name}`", where, *_counted([*some.values()])]
        for name in PROFILES
        for (profile, where), some in found.items()
        if profile == name
    ]


def data_and_table(table: Table, dataset: str) -> str:
    """A data set, and the table's title if its cells differ in more than data and split."""
    data = name_in(dataset)
    varied = any(set(fields) - {"dataset", "partition"} for fields in table.cells.values())
    return f"{data}, {table.title.lower()} ({table.name})" if varied else data


def _counted(found: Sequence[Claim]) -> list[str]:
    """How many settings have each verdict, the range of gains, and how far our figures are from the printed ones."""
    gains = [claim.against("fedavg") for claim in found]
    theirs = [claim.printed_gain for claim in found if claim.printed_gain is not None]
    apart = [_from_printed(found, method) if theirs else "-" for method in ("fedlc", "fedavg")]
    seeds = listed(map(str, sorted({claim.seeds for claim in found})))
    printed = span(theirs) if theirs else "-"
    means = span([gain.mean for gain in gains])
    return [str(len(gains)), lengths(found), seeds, counted(gains), means, printed, *apart]


def _from_printed(found: Sequence[Claim], method: str) -> str:
    """How far our figures are from the printed ones, over the seeds that both methods have."""
    ours = [on_common_seeds({name: by_seed(claim.ours[name]) for name in ("fedlc", "fedavg")}) for claim in found]
    return span(
        [
            mean[method] - claim.printed[method]
            for mean, claim in zip(ours, found, strict=True)
            if method in claim.printed
        ]
    )


def lengths(found: Sequence[Claim]) -> str:
    """`400`, or `5 and 100 of 400` where runs are shorter than the paper's."""
    lengths = {(claim.ours["fedlc"]["rounds"], claim.full_rounds) for claim in found}
    by_full = {full: [n for n, other in sorted(lengths) if other == full] for _, full in sorted(lengths)}
    return listed(str(full) if ran == [full] else f"{listed(map(str, ran))} of {full}" for full, ran in by_full.items())


def listed(texts: Iterable[str]) -> str:
    """`a, b and c`"""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def named(cell: str) -> str:
    """A cell or its split in short: `D(0.1)`, `Q(2)`, `IID`; `(0,0)` for Synthetic data, which have their own."""
    kind, _, value = cell.rpartition("/")[2].partition(":")
    return f"{_KINDS.get(kind, '')}({value})" if value else kind.upper()


def placed(cell: str) -> str:
    """A cell in short with all that it names: `cifar10 D(0.1)`, `E=5 svhn Q(5)`, `D(0.1)`, `m=10`."""
    place, _, split = cell.rpartition("/")
    short = named(cell) if place or split.partition(":")[0] in _KINDS else cell
    return f"{place.replace('/', ' ')} {short}".strip()


def span(values: Sequence[float], form: str = "+.2f") -> str:
    """`+0.10 to +2.50`, or the one value if all are equal."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def verdicts(found: Mapping[str, Difference]) -> str:
    """`above in Q(6), Q(8) by 0.18 and tied in Q(4) (-0.1 to +1.5 points, 3 seeds)`"""
    return f"{by_verdict(found)} ({points(found)} points, {seeds(found.values())})"


def by_verdict(found: Mapping[str, Difference]) -> str:
    """`above in Q(6), Q(8) by 0.18 and tied in Q(4)`"""
    at = {word: [cell for cell, gain in found.items() if gain.verdict == word] for word in VERDICTS}
    return listed(f"{word} in {_splits(there, found)}" for word, there in at.items() if there)


def counted(gains: Sequence[Difference]) -> str:
    """`above in 3, open in 1`"""
    said = [gain.verdict for gain in gains]
    return ", ".join(f"{word} in {said.count(word)}" for word in VERDICTS if word in said)


def points(found: Mapping[str, Difference]) -> str:
    """`-0.1 to +1.5`"""
    return span([gain.mean for gain in found.values()], "+.1f")


def _splits(there: Sequence[str], found: Mapping[str, Difference]) -> str:
    """The splits by name, with the difference where a verdict is about a small one; the number if they are all."""
    if len(there) == len(found) > 3:
        return f"{len(there)} splits"
    small = {c: gain.verdict in ("above", "below") and abs(gain.mean) < SMALL for c, gain in found.items()}
    return ", ".join(named(cell) + (f" by {abs(found[cell].mean):.2f}" if small[cell] else "") for cell in there)


def seeds(gains: Iterable[Difference]) -> str:
    return many([gain.seeds for gain in gains])


def many(numbers: Sequence[int]) -> str:
    """`one seed`, `2 to 3 seeds`"""
    return "one seed" if max(numbers) == 1 else f"{span(numbers, 'd')} seeds"


def by_seed(ours: Mapping[str, Any], measure: str = "each_last_ten") -> dict[int, float]:
    """Accuracy of each seed that did not diverge, in percent, by default the mean of the last ten rounds."""
    fine = (seed for seed in ours["seeds"] if seed not in ours["diverged"])
    return dict(zip(fine, ours[measure], strict=True))


def common_seeds(known: Mapping[str, Mapping[int, float]]) -> set[int]:
    """The seeds that all methods have."""
    return set.intersection(*map(set, known.values())) if known else set()


def on_common_seeds(known: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """The mean of each method over the seeds that all of them have; nothing if there are none."""
    common = common_seeds(known)
    return {method: statistics.fmean(of[seed] for seed in common) for method, of in known.items() if common}


def rank(known: Mapping[str, Mapping[int, float]], method: str) -> int:
    """A method's place: how many are ahead of it, each over the seeds that both have, and one."""
    pairs = [paired(of, known[method]) for other, of in known.items() if other != method]
    return 1 + sum(found is not None and found.mean > 0 for found in pairs)


def _comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether they have the same length and arithmetic and a seed in common, and no seed diverged."""
    alike = all(one[name] == other[name] for name in ("rounds", "precision"))
    return alike and bool(by_seed(one).keys() & by_seed(other).keys()) and not one["diverged"] and not other["diverged"]


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{method} {values[method]:.2f}" for method in sorted(values, key=lambda m: -values[m]))
