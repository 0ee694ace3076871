"""Finished runs as one line of text each: what is published, and what tables are made of. Never needs torch.

A line holds the whole run, its summary, the accuracy of every evaluated round, where it was computed, and what figures
measured on its model. Lines are kept as `*.jsonl` in a folder; copying files together merges them.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedskew.experiments.store import Folder, Store, StoreError, write_whole
from fedskew.report.summary import summarise

_NOT_THE_QUESTION = {"seed", "rounds", "precision", "engine", "device", "data_dir", "eval_every"}
_VERSIONS = ("fedskew", "torch", "device", "engine")


@dataclass(frozen=True)
class Result:
    """A finished run."""

    hash: str
    result_version: int
    run: dict[str, Any]
    short: dict[str, str]
    summary: dict[str, Any]
    curve: list[tuple[int, float]]
    sessions: list[dict[str, Any]]
    measured: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Folder) -> "Result | None":
        """The run of a folder, if it came to its end (or diverged on the way)."""
        about, records = folder.about(), folder.records()
        whole = bool(records) and (len(records) >= about["run"]["rounds"] or records[-1].get("diverged", False))
        if not whole:
            return None
        summary = summarise(about["run"], records, folder.card())
        curve = [
            (record["round"], round(record["accuracy"], 4)) for record in records if record["accuracy"] is not None
        ]
        sessions = [{name: session.get(name) for name in _VERSIONS} for session in folder.sessions()]
        once = [session for i, session in enumerate(sessions) if session not in sessions[:i]]
        return cls(
            about["hash"], about["result_version"], about["run"], about["short"], summary, curve, once,
            folder.measured(),
        )  # fmt: skip

    @property
    def rounds(self) -> int:
        """How long the run was meant to be."""
        return int(self.run["rounds"])

    @property
    def where(self) -> str:
        """The device it ran on."""
        return str((self.sessions or [{}])[-1].get("device", self.summary["device"]))

    def line(self) -> bytes:
        return json.dumps(vars(self), allow_nan=False).encode() + b"\n"


def question(run: dict[str, Any]) -> str:
    """What a run asks, whatever its seed, length and arithmetic."""
    asked = {name: value for name, value in run.items() if name not in _NOT_THE_QUESTION}
    return json.dumps({"validation": 0.0, **asked}, sort_keys=True)


class Results:
    """Everything that is known: lines of published files, and the runs of a store."""

    def __init__(self, version: int, store: Store | None = None, published: Path | None = None) -> None:
        self.version, self.problems = version, list[str]()
        self._by_question: dict[str, list[Result]] = {}
        for result in longest([*self._published(published), *self._stored(store)]).values():
            self._by_question.setdefault(question(result.run), []).append(result)

    def __iter__(self) -> Iterator[Result]:
        return (result for group in self._by_question.values() for result in group if self._current(result))

    def answering(self, run: dict[str, Any]) -> list[Result]:
        """Finished runs that ask the same, of this version of the code."""
        return [result for result in self._by_question.get(question(run), []) if self._current(result)]

    def of_other_versions(self, run: dict[str, Any]) -> int:
        """How many more there are from versions whose numbers may differ."""
        return sum(not self._current(result) for result in self._by_question.get(question(run), []))

    def _current(self, result: Result) -> bool:
        return result.result_version == self.version

    def _published(self, folder: Path | None) -> Iterator[Result]:
        for path in sorted(folder.glob("*.jsonl")) if folder is not None else ():
            yield from read_lines(path)

    def _stored(self, store: Store | None) -> Iterator[Result]:
        for folder in store or ():
            try:
                result = Result.of(folder)
            except StoreError as error:
                self.problems.append(str(error))
                continue
            if result is not None:
                yield result


def longest(results: Iterable[Result]) -> dict[str, Result]:
    """One result per run, the longest, with all that was measured on it."""
    found: dict[str, Result] = {}
    for result in results:
        before = found.get(result.hash, result)
        kept = result if result.rounds >= before.rounds else before
        found[result.hash] = replace(kept, measured={**before.measured, **result.measured})
    return found


def read_lines(path: Path) -> list[Result]:
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            content = json.loads(line)
            found.append(Result(**{**content, "curve": [(r, accuracy) for r, accuracy in content["curve"]]}))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{path}, line {number} is damaged ({error}); remove the line or the file") from error
    return found


def write_lines(path: Path, results: Iterable[Result]) -> int:
    """Add finished runs to a file, a longer one in place of a shorter one; returns how many lines it has then."""
    known = longest([*(read_lines(path) if path.exists() else []), *results])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(known[hash].line() for hash in sorted(known)))
    return len(known)
