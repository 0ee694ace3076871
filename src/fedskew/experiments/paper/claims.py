"""What the paper claims, cell by cell: FedLC against FedAvg, and the order of methods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.paper.profiles import PROFILES
from fedskew.experiments.paper.table import Table
from fedskew.experiments.results import Results
from fedskew.report.sensitivity import NEAR, verdict


@dataclass(frozen=True)
class Claim:
    """A cell with FedAvg and FedLC: the last ten rounds of every method that can be held against FedLC, and the paper's
    figures for the methods that were run."""

    cell: str
    ours: dict[str, float]
    printed: dict[str, float]
    runs: tuple[str, ...]

    @property
    def gain(self) -> float | None:
        """FedLC minus FedAvg."""
        return self.ours["fedlc"] - self.ours["fedavg"] if {"fedavg", "fedlc"} <= set(self.ours) else None

    @property
    def printed_gain(self) -> float | None:
        both = {"fedavg", "fedlc"} <= set(self.printed)
        return self.printed["fedlc"] - self.printed["fedavg"] if both else None

    def __str__(self) -> str:
        if self.gain is None:
            return f"{self.cell}: FedAvg and FedLC are of different length or seeds, or one diverged; not compared."
        theirs = "" if self.printed_gain is None else f"; the paper {self.printed_gain:+.2f}"
        both = {method: value for method, value in self.printed.items() if method in self.ours}
        return (
            f"{self.cell}: FedLC is {verdict(self.gain)} FedAvg ({self.gain:+.2f}{theirs}). "
            f"Order here: {_order(self.ours)}; the paper's: {_order(both)}."
        )


def claims(rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    for cell in dict.fromkeys(row["cell"] for row in rows):
        at = {row["method"]: row for row in rows if row["cell"] == cell and row["ours"]}
        if {"fedavg", "fedlc"} <= set(at):
            ours = {method: row["ours"]["last_ten"] for method, row in at.items() if _comparable(row, at["fedlc"])}
            printed = {method: row["printed"]["mean"] for method, row in at.items() if row["printed"]["mean"]}
            yield Claim(cell, ours, printed, (*at["fedavg"]["ours"]["hashes"], *at["fedlc"]["ours"]["hashes"]))


def in_short(results: Results, tables: Iterable[Table]) -> list[str]:
    """How often FedLC was above FedAvg, on each data set and under each profile; a run in two tables counts once."""
    lines = []
    for profile in PROFILES.values():
        found: dict[tuple[str, ...], Claim] = {}
        for table in tables:
            for claim in claims(table.rows(results, Choice(profile=profile))):
                if claim.gain is not None:
                    found.setdefault(claim.runs, claim)
        for data in dict.fromkeys(_data(claim) for claim in found.values()):
            lines.append(_counted(data, profile.name, [c for c in found.values() if _data(c) == data]))
    return lines


def _data(claim: Claim) -> str:
    return claim.cell.partition("/")[0].partition(":")[0]


def _counted(data: str, profile: str, claims: Sequence[Claim]) -> str:
    gains = {claim.cell: claim.gain for claim in claims if claim.gain is not None}
    theirs = [claim.printed_gain for claim in claims if claim.printed_gain is not None]
    said = [verdict(gain) for gain in gains.values()]
    best = sum(max(claim.ours, key=lambda method: claim.ours[method]) == "fedlc" for claim in claims)
    reached = sum("fedlc" in c.printed and c.ours["fedlc"] >= c.printed["fedlc"] - NEAR for c in claims)
    printed = f", where the paper prints {min(theirs):+.2f} to {max(theirs):+.2f}" if theirs else ""
    return (
        f"{data}, profile `{profile}`: above FedAvg in {said.count('above')} of {len(said)} settings, below in "
        f"{said.count('below')} ({min(gains.values()):+.2f} to {max(gains.values()):+.2f}{printed}); the best of the "
        f"methods that were run in {best}; its accuracy at least the paper's, less a point, in {reached}."
    )


def _comparable(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of the same length, arithmetic and seeds, with no seed diverged."""
    a, b = one["ours"], other["ours"]
    same = all(a[name] == b[name] for name in ("rounds", "precision", "seeds"))
    return same and not a["diverged"] and not b["diverged"]


def _order(values: dict[str, float]) -> str:
    return ", ".join(f"{method} {values[method]:.2f}" for method in sorted(values, key=lambda m: -values[m]))
