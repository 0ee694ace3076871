"""Runs that may be compared: equal in everything but method and seed."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedskew.core import spec
from fedskew.report.page.entries import Entry
from fedskew.report.style import ORDER
from fedskew.runs.measures import IID, Curves, Reach, Share, gap_closed, rounds_to_reach
from fedskew.runs.summary import over_seeds
from fedskew.runs.verdict import BASELINE, FEWEST, Difference, ahead
from fedskew.runs.versions import DECIDING_NOTHING, result_version

_NUMBER = re.compile(r"\d+\.?\d*(?:e[+-]?\d+)?")

OWN_FIELDS = {"algorithm", "seed", *DECIDING_NOTHING}
"""Fields in which runs of one federation may differ."""


@dataclass(frozen=True)
class Method:
    """All seeds of one method on one federation."""

    name: str
    entries: list[Entry]
    called: str | None = None

    @property
    def label(self) -> str:
        """What tables and curves call it."""
        return self.called or self.name

    @property
    def finished(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.state == "done"]

    @property
    def drawn(self) -> list[Entry]:
        """What its curve is the mean of: finished runs, or else unfinished ones, or else those that diverged."""
        unfinished = [entry for entry in self.entries if entry.state == "unfinished"]
        return self.finished or unfinished or self.entries

    @property
    def curves(self) -> Curves:
        """The accuracies of finished runs, by seed."""
        return {entry.run["seed"]: entry.curve for entry in self.finished}

    @cached_property
    def row(self) -> dict[str, Any]:
        """Mean and std of each measure over finished runs; a seed that diverged has no value."""
        ended = [entry.summary for entry in self.entries if entry.state != "unfinished"]
        nothing = [{**self.entries[0].summary, "diverged": True}]
        return {"method": self.name, **over_seeds(ended or nothing), "diverged": self.count("diverged")}

    def count(self, state: str) -> int:
        return sum(entry.state == state for entry in self.entries)


@dataclass(frozen=True)
class Federation:
    """One section of the report. `iid` is the same federation on an IID split, if that was run, and `longer` the same
    with more rounds and FedAvg, if FedAvg is not here; `elsewhere` is whether another of its title then has FedAvg.
    `target` is the accuracy that rounds are counted to, FedAvg's end if it is None. Each method has its own result
    version, so runs belong together if they are equally many versions behind today's."""

    title: str
    fields: dict[str, Any]
    versions_behind: int
    methods: list[Method]
    iid: "Federation | None" = None
    target: float | None = None
    own: tuple[str, ...] = ()
    longer: "Federation | None" = None
    elsewhere: bool = False

    @property
    def name(self) -> str:
        """Its title, and the fields of its `own`: those in which it differs from others of the same title."""
        said = [f"{name.replace('_', ' ')} {spec.show(self.fields.get(name))}" for name in self.own]
        if self.versions_behind:
            said.append("computed by an earlier version")
        return ", ".join([self.title, *said])

    @property
    def rounds(self) -> int:
        """How many rounds its runs have."""
        return int(self.fields["rounds"])

    @property
    def entries(self) -> list[Entry]:
        return [entry for method in self.methods for entry in method.entries]

    @property
    def baseline(self) -> Method | None:
        return self.method(BASELINE)

    @property
    def base_label(self) -> str:
        """What FedAvg is called."""
        return BASELINE if self.baseline is None else self.baseline.label

    @property
    def compared(self) -> int:
        """How many of its methods have the seeds that verdicts take; none where these are too few to compare."""
        enough = sum(len(method.finished) >= FEWEST for method in self.methods)
        return enough if enough > 1 else 0

    def method(self, name: str) -> Method | None:
        return next((method for method in self.methods if method.name == name), None)

    def difference(self, method: Method) -> Difference | None:
        """The method against FedAvg over the seeds that both have finished."""
        base = self.baseline
        return None if base is None or method is base else ahead(method.row, base.row)

    def reach(self, method: Method) -> Reach | None:
        """How many rounds a method takes to reach the target."""
        base = {} if self.baseline is None else self.baseline.curves
        return rounds_to_reach(method.curves, base if self.target is None else self.target)

    def gap_closed(self, method: Method) -> Share | None:
        """The share of the gap between FedAvg here and FedAvg on IID data that a method closes."""
        base, level = self.baseline, None if self.iid is None else self.iid.baseline
        return None if base is None or level is None else gap_closed(method.curves, base.curves, level.curves)

    def difference_on_iid(self, method: Method) -> Difference | None:
        """The same method against FedAvg on IID data."""
        same = None if self.iid is None else self.iid.method(method.name)
        return None if self.iid is None or same is None else self.iid.difference(same)


def federations(
    entries: Iterable[Entry],
    target: float | None = None,
    names: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
) -> list[Federation]:
    """Sections that compare the most methods come first; equal ones are in order of their titles, and of their settings
    where titles agree. Rounds are counted to the target. `names` are what methods are called; those in `order` stand
    so. The first rounds of longer runs join a section of that length and make none of their own."""
    groups: dict[tuple[str, str, int], list[Entry]] = {}
    for entry in entries:
        shared = {"validation": 0.0, **{name: v for name, v in entry.run.items() if name not in OWN_FIELDS}}
        shared |= {f"{name}_content": v for name, v in entry.contents.items() if name not in OWN_FIELDS}
        fields = json.dumps(shared, sort_keys=True)
        behind = result_version(entry.run["algorithm"]) - entry.result_version
        groups.setdefault((entry.short["title"], fields, behind), []).append(entry)
    found = [
        Federation(title, json.loads(fields), behind, _methods(members, names or {}, order), target=target)
        for (title, fields, behind), members in sorted(groups.items(), key=lambda group: group[0])
    ]
    found.sort(key=lambda each: -each.compared)
    shown = [each for each in found if not all(entry.cut for entry in each.entries)]
    with_base = {each.title for each in shown if each.baseline is not None}
    return [
        replace(
            each,
            iid=_on_iid(each, found),
            own=_own_fields(each, shown),
            longer=_longer(each, shown),
            elsewhere=each.baseline is None and each.title in with_base,
        )
        for each in shown
    ]


def hashes_of(federations: Iterable[Federation]) -> list[str]:
    """All runs, each once: one of several lengths can be in several sections."""
    return list(dict.fromkeys(entry.hash for federation in federations for entry in federation.entries))


def _own_fields(federation: Federation, others: Sequence[Federation]) -> tuple[str, ...]:
    """Fields in which a federation differs from others of its title. What more than half of them have is left out: no
    two federations that differ in a field can both have its commonest value, so names still tell them apart."""
    fields = federation.fields
    alike = [other.fields for other in others if other.title == federation.title]
    found = []
    for name in fields:
        of_file = name.removesuffix("_content")  # a digest tells apart only what has one file's name
        values = [each.get(name) for each in alike if of_file == name or each.get(of_file) == fields.get(of_file)]
        same = values.count(fields[name])
        if same < len(values) and 2 * same <= len(values):
            found.append(name)
    return tuple(found)


def _on_iid(federation: Federation, others: Sequence[Federation]) -> Federation | None:
    """The federation that differs only in its split, which is IID."""
    if federation.fields["partition"] == IID:
        return None
    wanted = {name: v for name, v in federation.fields.items() if name != "partition_content"} | {"partition": IID}
    same = (other for other in others if other.fields == wanted and other.versions_behind == federation.versions_behind)
    return next(same, None)


def _longer(federation: Federation, others: Sequence[Federation]) -> Federation | None:
    """The shortest one that has FedAvg, where this one does not, and that differs only in having more rounds."""
    if federation.baseline is not None:
        return None
    alike = [
        other
        for other in others
        if {**other.fields, "rounds": federation.rounds} == federation.fields
        and other.versions_behind == federation.versions_behind
        and other.rounds > federation.rounds
        and other.baseline is not None
    ]
    return min(alike, key=lambda other: other.rounds, default=None)


def _methods(entries: Sequence[Entry], names: Mapping[str, str], order: Sequence[str]) -> list[Method]:
    """By name, seeds in order. Where a user's file has changed, each content is a method of its own, named by its
    digest; so are runs whose methods differ and are called the same, as two Python functions can be."""
    found: dict[str, dict[int, Entry]] = {}
    whole: dict[str, str] = {}
    contents: dict[str, set[str]] = {}
    for entry in entries:
        contents.setdefault(entry.method, set()).add(entry.contents.get("algorithm", ""))
    for entry in sorted(entries, key=lambda each: (each.run["seed"], each.hash)):
        content = entry.contents.get("algorithm", "")
        called = f"{entry.method} (file {content or 'unknown'})" if len(contents[entry.method]) > 1 else entry.method
        name, copy, method = called, 1, entry.run["algorithm"]
        while whole.setdefault(name, method) != method or entry.run["seed"] in found.setdefault(name, {}):
            copy += 1
            name = f"{called} ({copy})"
        found[name][entry.run["seed"]] = entry
    listed = _reordered(sorted(found, key=_place), order)
    return [Method(name, list(found[name].values()), names.get(name)) for name in listed]


def _reordered(listed: Sequence[str], order: Sequence[str]) -> list[str]:
    """Those in `order` stand so among themselves; the others keep their places."""
    wanted = iter([name for name in dict.fromkeys(order) if name in listed])
    return [next(wanted) if name in order else name for name in listed]


def _place(name: str) -> tuple[int, str, list[float]]:
    """Variants of a method by their numbers: tau 2 before 10."""
    plain = spec.family(name)
    place = ORDER.index(plain) if plain in ORDER else len(ORDER)
    return place, _NUMBER.sub("", name), [float(number) for number in _NUMBER.findall(name)]
