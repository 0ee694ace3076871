"""Finished runs as one line of text each, for publishing and for tables. Never needs torch.

A line holds the whole run, its summary, the accuracy of every evaluated round, where it was computed, and what figures
measured on its model. A run that was requested with several lengths has a line for each. Lines are kept as `*.jsonl` in
a folder; copying files together merges them.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedskew.core.files import regular, write_whole
from fedskew.runs.forms import ResultForm
from fedskew.runs.sealed import Damaged, seal, unseal
from fedskew.runs.store import Folder, Store, StoreError
from fedskew.runs.summary import is_finished, summarise
from fedskew.runs.versions import DECIDING_NOTHING, result_version

_NOT_THE_QUESTION = DECIDING_NOTHING | {"seed", "rounds", "precision"}
_VERSIONS = ("fedskew", "torch", "device", "engine")


@dataclass(frozen=True)
class Result:
    """A finished run of one length."""

    hash: str
    result_version: int
    run: dict[str, Any]
    short: dict[str, str]
    summary: dict[str, Any]
    curve: list[tuple[int, float]]
    sessions: list[dict[str, Any]]
    measured: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Folder) -> "list[Result]":
        """The results of a folder: every requested length that is finished."""
        records, saved = folder.records(), folder.saved()
        return [cls._at(folder, records[:n], n) for n in folder.lengths() if is_finished(records, n, saved)]

    @classmethod
    def _at(cls, folder: Folder, records: list[dict[str, Any]], rounds: int) -> "Result":
        about = folder.about()
        curve = [(r["round"], round(r["accuracy"], 4)) for r in records if r["accuracy"] is not None]
        sessions = [{name: session.get(name) for name in _VERSIONS} for session in folder.sessions()]
        return cls(
            hash=about["hash"],
            result_version=about["result_version"],
            run={**about["run"], "rounds": rounds},
            short=about["short"],
            summary=summarise(about["run"], records, folder.card()),
            curve=curve,
            sessions=[session for i, session in enumerate(sessions) if session not in sessions[:i]],
            measured=folder.measured(rounds),
        )

    @property
    def rounds(self) -> int:
        """The requested length of the run."""
        return int(self.run["rounds"])

    @property
    def precision(self) -> str:
        return str(self.run["precision"])

    @property
    def seed(self) -> int:
        return int(self.run["seed"])

    @property
    def diverged(self) -> bool:
        return bool(self.summary["diverged"])

    @property
    def device(self) -> str:
        """Where it ran."""
        return str((self.sessions or [{}])[-1].get("device", self.summary["device"]))

    def line(self) -> bytes:
        return seal(vars(self)) + b"\n"


def question(run: dict[str, Any]) -> str:
    """What identifies a run except its seed, length and arithmetic."""
    asked = {name: value for name, value in run.items() if name not in _NOT_THE_QUESTION}
    return json.dumps({"validation": 0.0, **asked}, sort_keys=True)


class Results:
    """All known results: lines of published files, and the runs of a store."""

    def __init__(self, store: Store | None = None, published: Path | None = None) -> None:
        self.problems = list[str]()
        self._by_question: dict[str, list[Result]] = {}
        files = sorted(published.glob("*.jsonl")) if published is not None else []
        lines = [result for path in files for result in read_lines(path, self.problems)]
        for result in merged([*lines, *stored(store, self.problems)]):
            self._by_question.setdefault(question(result.run), []).append(result)

    def only(self, precision: str | None) -> "Results":
        """Results of one arithmetic; None keeps all."""
        return self if precision is None else self.where(lambda result: result.precision == precision)

    def where(self, wanted: Callable[[Result], bool]) -> "Results":
        """The results that a function says yes to."""
        view = copy(self)
        view._by_question = {asked: list(filter(wanted, found)) for asked, found in self._by_question.items()}
        return view

    @property
    def precisions(self) -> list[str]:
        return sorted({result.precision for result in self})

    def __iter__(self) -> Iterator[Result]:
        return (result for found in self._by_question.values() for result in found if self._current(result))

    def answering(self, run: dict[str, Any]) -> list[Result]:
        """Finished runs with the same identity, from this version of the code."""
        return [result for result in self._by_question.get(question(run), []) if self._current(result)]

    def exactly(self, run: dict[str, Any]) -> list[Result]:
        """The results with the same seed and length."""
        return [r for r in self.answering(run) if r.seed == run["seed"] and r.rounds == run["rounds"]]

    def of_other_versions(self, run: dict[str, Any]) -> int:
        """How many more exist from versions whose numbers may differ."""
        return sum(not self._current(result) for result in self._by_question.get(question(run), []))

    def _current(self, result: Result) -> bool:
        return result.result_version == result_version(result.run["algorithm"])


def stored(store: Store | None, problems: list[str]) -> Iterator[Result]:
    """The results of a store; a run that cannot be read is one of the `problems`."""
    for folder in store or ():
        try:
            yield from Result.of(folder)
        except StoreError as error:
            problems.append(str(error))


def merged(results: Iterable[Result]) -> list[Result]:
    """One result for each run and length, with all measurements on it; the last one given counts."""
    found: dict[tuple[str, int], Result] = {}
    for result in results:
        key = result.hash, result.rounds
        before = found[key].measured if key in found else {}
        found[key] = replace(result, measured={**before, **result.measured})
    return [found[key] for key in sorted(found)]


def read_lines(path: Path, problems: list[str] | None = None) -> list[Result]:
    """The results of a file. A damaged line is an error, or one of the `problems` if these are collected."""
    found = []
    for number, line in enumerate(regular(path).read_bytes().splitlines(), 1):
        try:
            found.append(_result(line))
        except Damaged as error:
            problem = f"{path}, line {number} is damaged: {error}; remove the line or the file"
            if problems is None:
                raise StoreError(problem) from None
            problems.append(problem)
    return found


def _result(line: bytes) -> Result:
    content = unseal(ResultForm, line)
    result = Result(**{f.name: content[f.name] for f in fields(Result) if f.name in content})
    if not result.diverged and None in (result.summary["accuracy"], result.summary["accuracy_last10"]):
        raise Damaged("summary has no accuracy, but the run has not diverged")
    return result


def write_lines(path: Path, results: Iterable[Result]) -> int:
    """Add finished runs to a file; returns its new number of lines."""
    lines = merged([*(read_lines(path) if path.exists() else []), *results])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(result.line() for result in lines))
    return len(lines)
