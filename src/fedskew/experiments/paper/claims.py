"""What the paper claims, cell by cell: FedLC against FedAvg, and the order of methods."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.paper.profiles import PROFILES
from fedskew.experiments.paper.table import Table
from fedskew.experiments.results import Results
from fedskew.report.verdict import verdict


@dataclass(frozen=True)
class Claim:
    """A cell with FedAvg and FedLC. `ours` are the figures of every method that can be held against FedLC, `printed`
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

    def gains(self, over: str) -> tuple[float, float]:
        """FedLC minus another method, over the last ten rounds and in the last one."""
        mine, other = self.ours["fedlc"], self.ours[over]
        return mine["last_ten"] - other["last_ten"], mine["mean"] - other["mean"]

    def stands(self, to: str) -> str:
        return verdict(self.gains(to), self.seeds)

    @property
    def printed_gain(self) -> float | None:
        both = {"fedavg", "fedlc"} <= set(self.printed)
        return self.printed["fedlc"] - self.printed["fedavg"] if both else None

    def __str__(self) -> str:
        if not self.compared:
            return f"{self.cell}: FedAvg and FedLC are of different length or seeds, or one diverged; not compared."
        mean, last = self.gains("fedavg")
        theirs = "" if self.printed_gain is None else f"; the paper {self.printed_gain:+.2f}"
        means = {method: figures["last_ten"] for method, figures in self.ours.items()}
        both = {method: value for method, value in self.printed.items() if method in self.ours}
        return (
            f"{self.cell}: FedLC is {self.stands('fedavg')} FedAvg ({mean:+.2f}{self._spread()}; last round "
            f"{last:+.2f}{theirs}). Order here: {_order(means)}; the paper's: {_order(both)}."
        )

    def _spread(self) -> str:
        """The standard deviation of the gain over seeds: a seed is the same data and first model for both methods."""
        pairs = zip(*(self.ours[method]["each_last_ten"] for method in ("fedlc", "fedavg")), strict=True)
        gaps = [mine - other for mine, other in pairs]
        return f" ± {statistics.stdev(gaps):.2f} paired by seed" if len(gaps) > 1 else ""


def claims(table: Table, rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    for cell in dict.fromkeys(row["cell"] for row in rows):
        at = {row["method"]: row for row in rows if row["cell"] == cell and row["ours"]}
        if {"fedavg", "fedlc"} <= set(at):
            mine = at["fedlc"]["ours"]
            ours = {method: row["ours"] for method, row in at.items() if _comparable(row["ours"], mine)}
            printed = {method: row["printed"]["mean"] for method, row in at.items() if row["printed"]["mean"]}
            yield Claim(cell, table.full_rounds(cell), ours, printed)


def in_short(results: Results, tables: Iterable[Table]) -> list[str]:
    """How often FedLC was above FedAvg, on each data set and under each profile; a run in two tables counts once."""
    lines = []
    for profile in PROFILES.values():
        found: dict[tuple[str, ...], Claim] = {}
        for table in tables:
            for claim in claims(table, table.rows(results, Choice(profile=profile))):
                if claim.compared:
                    found.setdefault(claim.runs, claim)
        for data in dict.fromkeys(_data(claim) for claim in found.values()):
            lines.append(_counted(data, profile.name, [c for c in found.values() if _data(c) == data]))
    return lines


def _data(claim: Claim) -> str:
    return claim.cell.partition("/")[0].partition(":")[0]


def _counted(data: str, profile: str, found: Sequence[Claim]) -> str:
    said = [claim.stands("fedavg") for claim in found]
    gains = [claim.gains("fedavg")[0] for claim in found]
    theirs = [claim.printed_gain for claim in found if claim.printed_gain is not None]
    rivals = [[claim.stands(method) for method in claim.ours if method != "fedlc"] for claim in found]
    return (
        f"{data}, profile `{profile}`, {_lengths(found)}: FedLC is above FedAvg in {said.count('above')} of "
        f"{len(said)} settings and below in {said.count('below')} ({_range(gains)}"
        + (f"; the paper prints {_range(theirs)}" if theirs else "")
        + f"). It is above every other method that was run in {sum(set(one) == {'above'} for one in rivals)}, with "
        f"{_range([len(claim.ours) for claim in found], 'd')} methods run."
        + (f" To the paper's own figures, {_to_printed(found)}." if theirs else "")
    )


def _to_printed(found: Sequence[Claim]) -> str:
    """How far ours are from what is printed."""
    gaps = {
        name: [c.ours[method]["last_ten"] - c.printed[method] for c in found if method in c.printed]
        for name, method in (("FedLC", "fedlc"), ("FedAvg", "fedavg"))
    }
    return " and ".join(f"{name} is at {_range(values)}" for name, values in gaps.items())


def _lengths(found: Sequence[Claim]) -> str:
    lengths = {(claim.ours["fedlc"]["rounds"], claim.full_rounds) for claim in found}
    rounds = [f"{n} rounds" if n == full else f"{n} of {full} rounds (shortened)" for n, full in sorted(lengths)]
    seeds = sorted({claim.seeds for claim in found})
    return f"{' and '.join(rounds)}, {' and '.join('one seed' if n == 1 else f'{n} seeds' for n in seeds)}"


def _range(values: Sequence[float], form: str = "+.2f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the figures of two rows are of the same length, arithmetic and seeds."""
    return all(one[name] == other[name] for name in ("rounds", "precision", "seeds"))


def _comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether they are alike and no seed diverged."""
    return alike(one, other) and not one["diverged"] and not other["diverged"]


def _order(values: Mapping[str, float]) -> str:
    return ", ".join(f"{method} {values[method]:.2f}" for method in sorted(values, key=lambda m: -values[m]))
