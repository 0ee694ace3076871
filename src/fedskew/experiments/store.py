"""Runs on disk: `runs/<hash>/` holds the run, one JSON line per round, its partition card and a checkpoint.

Files are replaced whole or appended by the line, so a process killed at any moment loses at most the rounds since its
last checkpoint, and those are computed again to the same bits. Nothing here unpickles anything.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FORMAT = 1
_RUN, _RECORDS, _CARD, _SESSIONS = "run.json", "records.jsonl", "partition.json", "sessions.jsonl"
_MEASURED, _DIAGNOSIS = "measured.json", "diagnosis.json"
_ALWAYS = {"accuracy", "diverged", "seconds"}  # in every record
CHECKPOINT = "checkpoint.safetensors"


class StoreError(Exception):
    """Something in the store is damaged, busy, or from another version. The message says what to do."""


class StoreBusy(StoreError):
    """Another process is working on the run."""


class Folder:
    """One run's folder. Reading never needs torch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return (self.path / _RUN).exists()

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def create(self, hash: str, run: dict[str, Any], short: dict[str, str], result_version: int) -> None:
        """Begin the folder, or note how the run is asked for now. `short` is what tables call the run."""
        lengths = sorted({run["rounds"], *(self.lengths() if self.exists() else ())})
        known = {"format": FORMAT, "result_version": result_version, "hash": hash}
        content = {**known, "run": {**run, "rounds": lengths[-1]}, "short": short, "lengths": lengths}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / _RUN, json.dumps(content, indent=1).encode())
        except OSError as error:
            raise StoreError(f"cannot write to {self.path}: {error.strerror}") from error

    def drop_empty(self) -> None:
        """Leave nothing of a run that has not finished a round. The caller has the lock."""
        if not self.records():
            shutil.rmtree(self.path, ignore_errors=True)

    def run(self) -> dict[str, Any]:
        """The fields of the run."""
        run: dict[str, Any] = self.about()["run"]
        return run

    def lengths(self) -> list[int]:
        """Every number of rounds that the run was asked for: each is a result of its own."""
        about = self.about()
        lengths: list[int] = about.get("lengths", [about["run"]["rounds"]])
        return lengths

    def aim(self, records: int) -> int:
        """How long the run is to be, with so many records: as long as it is if that was asked for, else the longest."""
        lengths = self.lengths()
        return records if records in lengths else max(lengths)

    def short(self) -> dict[str, str]:
        """The run's specs as people write them, and its title."""
        short: dict[str, str] = self.about()["short"]
        return short

    def about(self) -> dict[str, Any]:
        """The run, its hash, what tables call it, and the version of the code whose numbers these are."""
        content = self._json(_RUN)
        if content.get("format") != FORMAT:
            raise StoreError(
                f"{self.path} is in store format {content.get('format')}, this version reads {FORMAT}; "
                "use another --runs folder"
            )
        if not isinstance(content.get("run"), dict) or not isinstance(content.get("short"), dict):
            raise StoreError(f"{self.path / _RUN} is damaged; `fedskew runs remove {self.path.name}` starts over")
        return content

    def card(self) -> dict[str, Any] | None:
        return self._json(_CARD) if (self.path / _CARD).exists() else None

    def write_card(self, card: dict[str, Any]) -> None:
        write_whole(self.path / _CARD, json.dumps(card).encode())

    def records(self) -> list[dict[str, Any]]:
        """Complete records in order of rounds; a half-written last line is not one."""
        path = self.path / _RECORDS
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        found = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                intact = record["round"] == number and record.keys() >= _ALWAYS
            except (ValueError, TypeError, KeyError):
                intact = False
            if not intact:
                raise StoreError(
                    f"{path}, line {number} is damaged; `fedskew runs remove {self.path.name}` starts over"
                )
            found.append(record)
        return found

    def keep_records(self, rounds: int) -> list[dict[str, Any]]:
        """Drop records after a round: those that no checkpoint covers."""
        kept = self.records()[:rounds]
        if len(kept) < rounds:
            raise StoreError(
                f"{self.path} has a checkpoint of round {rounds} but only {len(kept)} records; "
                f"`fedskew runs remove {self.path.name}` starts over"
            )
        write_whole(self.path / _RECORDS, b"".join(_line(record) for record in kept))
        return kept

    def fill_records(self, records: list[dict[str, Any]]) -> None:
        """Records computed again, in place of those of the same rounds that had not been evaluated."""
        kept = self.records()
        kept[: len(records)] = [
            new if old["accuracy"] is None else old for old, new in zip(kept, records, strict=False)
        ]
        write_whole(self.path / _RECORDS, b"".join(_line(record) for record in kept))

    def append_record(self, record: dict[str, Any]) -> None:
        _append(self.path / _RECORDS, record)

    def sessions(self) -> list[dict[str, Any]]:
        """Where and with which versions each part of the run was computed."""
        path = self.path / _SESSIONS
        if not path.exists():
            return []
        found = []
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def measured(self, round: int) -> dict[str, Any]:
        """What was measured on the model of a round, by the name of the measurement."""
        return {name: rounds[str(round)] for name, rounds in self._all_measured().items() if str(round) in rounds}

    def write_measured(self, name: str, round: int, content: Any) -> None:
        known = self._all_measured()
        known[name] = {**known.get(name, {}), str(round): content}
        write_whole(self.path / _MEASURED, json.dumps(known, allow_nan=False).encode())

    def diagnosis(self) -> dict[str, Any] | None:
        """The last diagnosis of the run's model, None where there is none; too long to be condensed with the run."""
        return self._extra(_DIAGNOSIS)

    def write_diagnosis(self, content: dict[str, Any]) -> None:
        write_whole(self.path / _DIAGNOSIS, json.dumps(content, allow_nan=False).encode())

    def damaged_extras(self) -> list[str]:
        """A note for each file beside the run that is there and cannot be read; it counts as absent."""
        writers = {
            _DIAGNOSIS: f"`fedskew diagnose {self.path.name[:8]}` writes it again",
            _MEASURED: "`fedskew paper run figure2` and the other figures write it again",
        }
        damaged = [name for name in writers if (self.path / name).exists() and self._extra(name) is None]
        return [f"{name} is damaged and was not used; {writers[name]}" for name in damaged]

    def append_session(self, session: dict[str, Any]) -> None:
        _append(self.path / _SESSIONS, session)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process works on a run at a time."""
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with (self.path / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreBusy(f"another process is working on run {self.path.name}") from None
            yield

    def _all_measured(self) -> dict[str, Any]:
        return self._extra(_MEASURED) or {}

    def _extra(self, name: str) -> dict[str, Any] | None:
        """A file that the run does without; None where it is absent or damaged."""
        try:
            content = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return None
        sound = isinstance(content, dict) and (
            name != _MEASURED or all(isinstance(rounds, dict) for rounds in content.values())
        )
        return content if sound else None

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content = json.loads(path.read_bytes())
            if isinstance(content, dict):
                return content
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        except ValueError:
            pass
        raise StoreError(f"{path} is damaged; `fedskew runs remove {self.path.name}` starts over")


class Store:
    """All runs below one folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def folder(self, hash: str) -> Folder:
        return Folder(self.root / hash)

    def find(self, beginning: str) -> Folder:
        """The one run whose hash begins so; the path of its folder in this store will do as well."""
        if "/" in beginning and Path(beginning).parent.resolve() == self.root.resolve():
            beginning = Path(beginning).name
        names = [folder.path.name for folder in self if folder.path.name.startswith(beginning)]
        if len(names) == 1:
            return self.folder(names[0])
        if names:
            raise ValueError(f"{beginning!r} is the beginning of several runs: {', '.join(names[:5])}")
        raise ValueError(f"there is no run {beginning!r} in {self.root}; `fedskew runs list` shows those there are")

    def __iter__(self) -> Iterator[Folder]:
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if (path / _RUN).is_file():
                    yield Folder(path)

    def remove(self, folder: Folder) -> None:
        with folder.lock():
            shutil.rmtree(folder.path)


def write_whole(path: Path, content: bytes) -> None:
    """All of the content or none of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _append(path: Path, record: dict[str, Any]) -> None:
    with path.open("ab") as handle:
        handle.write(_line(record))
