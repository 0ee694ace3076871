"""Runs on disk: `runs/<hash>/` holds the run, one JSON line per round, its partition card and a checkpoint.

Files are replaced whole or appended by the line, so a process killed at any moment loses at most the rounds since its
last checkpoint, and those are computed again to the same bits. Everything is checked when read: every file and every
line has a form and a checksum. Nothing is ever unpickled.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fedskew.core.files import naming, regular, write_whole
from fedskew.runs.forms import AboutForm, Anything, CardForm, Measured, RecordForm, SessionForm
from fedskew.runs.sealed import Damaged, seal, unseal

FORMAT = 1
_RUN, _RECORDS, _CARD, _SESSIONS = "run.json", "records.jsonl", "partition.json", "sessions.jsonl"
_MEASURED, _DIAGNOSIS = "measured.json", "diagnosis.json"
CHECKPOINT = "checkpoint.safetensors"
_PATIENCE = 10.0
"""Seconds to wait for another process that only adds a measurement."""
_held = set[tuple[int, Path]]()
"""The process, and the folders of runs that it has locked: one that was forked holds none."""


def default_root() -> Path:
    """The store of a command without `--runs`."""
    return Path(os.environ.get("FEDSKEW_RUNS") or "runs")


def naming_store(root: Path) -> str:
    """What a command needs to find the store in this folder: ` --runs demo/runs`, or nothing for the default one."""
    return "" if root == default_root() else f" --runs {shlex.quote(str(root))}"


def starting_over(folder: Path) -> str:
    """How to get rid of a damaged run."""
    return f"`fedskew runs remove {folder.name}{naming_store(folder.parent)}` starts over"


class StoreError(Exception):
    """Something in the store is damaged, busy, or from another version. The message says what to do."""


class StoreBusy(StoreError):
    """Another process is working on the run, or another iterator of this one."""


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
        """Create the folder, or record the current request. `short` is the run's name in tables."""
        lengths = sorted({run["rounds"], *(self.lengths() if self.exists() else ())})
        known = {"format": FORMAT, "result_version": result_version, "hash": hash}
        content = {**known, "run": {**run, "rounds": lengths[-1]}, "short": short, "lengths": lengths}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / _RUN, seal(content, indent=1))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StoreError:
        elsewhere = "another store is named by --runs, in Python and in a Flower app by store"
        return StoreError(f"cannot write to {self.path}: {error.strerror}; {elsewhere}")

    def drop_empty(self) -> None:
        """Remove a run that has not finished a round. The caller holds the lock."""
        if not self.records():
            shutil.rmtree(self.path, ignore_errors=True)

    def run(self) -> dict[str, Any]:
        """The fields of the run."""
        run: dict[str, Any] = self.about()["run"]
        return run

    def lengths(self) -> list[int]:
        """Every requested number of rounds: each is a separate result."""
        about = self.about()
        lengths: list[int] = about.get("lengths", [about["run"]["rounds"]])
        return lengths

    def aim(self, records: int) -> int:
        """The run's target length, given its number of records: that number if it was requested, else the longest."""
        lengths = self.lengths()
        return records if records in lengths else max(lengths)

    def about(self) -> dict[str, Any]:
        """The run, its hash, its specs and title as people read them (`short`), and the version that computed it."""
        path = self.path / _RUN
        text = _content(path)
        format = self._checked(Anything, text, path).get("format")
        if format != FORMAT:
            raise StoreError(
                f"{self.path} is in store format {json.dumps(format)[:20]}, this version reads {FORMAT}; "
                "use another --runs folder"
            )
        return self._checked(AboutForm, text, path)

    def card(self) -> dict[str, Any] | None:
        path = self.path / _CARD
        if not path.exists():
            return None
        card = self._checked(CardForm, _content(path), path)
        if {len(row) for row in card["counts"]} != {card["classes"]} or len(card["counts"]) != card["clients"]:
            raise self._damaged(path, "counts does not have a row for each client and a number for each class")
        return card

    def write_card(self, card: dict[str, Any]) -> None:
        write_whole(self.path / _CARD, seal(card))

    def records(self) -> list[dict[str, Any]]:
        """Complete records in order of rounds; a half-written last line does not count."""
        path = self.path / _RECORDS
        saved = self.saved()  # read before the records: a running process writes it after them
        found = self._lines(path, RecordForm)
        for number, record in enumerate(found, 1):
            if record["round"] != number:
                raise self._damaged(_line_of(path, number), f"it is for round {record['round']}")
        if len(found) < saved:
            raise self._damaged(path, f"it ends with round {len(found)}, but the checkpoint is from round {saved}")
        return found

    def saved(self) -> int:
        """The round whose model is kept; 0 if there is none. Records of later rounds are computed again."""
        return checkpoint_facts(self.checkpoint)[0] if self.checkpoint.exists() else 0

    def written(self) -> float | None:
        """When the last record was written, in seconds since 1970; for a run without records, when it was created."""
        times = [path.stat().st_mtime for name in (_RECORDS, _RUN) if (path := self.path / name).is_file()]
        return times[0] if times else None

    def diverged(self) -> bool:
        """Whether the kept model is that of the round in which the run diverged."""
        saved, records = self.saved(), self.records()  # in this order: records grow first
        return bool(saved and records[saved - 1]["diverged"])

    def write_checkpoint(self, content: bytes) -> None:
        """Replace the checkpoint, once the records that it covers are on disk."""
        with naming(self.path / _RECORDS), (self.path / _RECORDS).open("ab") as handle:
            os.fsync(handle.fileno())
        write_whole(self.checkpoint, content)

    def keep_records(self, rounds: int) -> list[dict[str, Any]]:
        """Drop records after a round: those that no checkpoint covers."""
        found = self.records()
        if len(found) > rounds:
            self._write_records(found[:rounds])
        return found[:rounds]

    def fill_records(self, records: list[dict[str, Any]]) -> None:
        """Give unevaluated records the measures of recomputed ones of the same rounds. What probes found stays, and
        what the rounds cost: this run did not fit its readout there."""
        kept = self.records()
        for i, (old, new) in enumerate(zip(kept, records, strict=False)):
            if old["accuracy"] is None:
                probes = {**old.get("probes", {}), **new["probes"]}
                kept[i] = {**new, "seconds": old["seconds"], "asked": old.get("asked", 0), "probes": probes}
        self._write_records(kept)

    def _write_records(self, records: list[dict[str, Any]]) -> None:
        write_whole(self.path / _RECORDS, b"".join(map(_line, records)))

    def append_record(self, record: dict[str, Any]) -> None:
        """Append a whole line; half a line left by an interruption is cut off first."""
        path = self.path / _RECORDS
        with naming(path), path.open("a+b") as handle:
            if handle.seek(0, os.SEEK_END):
                handle.seek(-1, os.SEEK_END)
                if handle.read(1) != b"\n":
                    handle.seek(0)
                    handle.truncate(handle.read().rfind(b"\n") + 1)
            handle.write(_line(record))

    def sessions(self) -> list[dict[str, Any]]:
        """Where and with which versions each part of the run was computed."""
        path = self.path / _SESSIONS
        if path.exists() and not _content(path).endswith(b"\n"):
            raise self._damaged(path, "its last line has no end")  # sessions are written whole
        return self._lines(path, SessionForm)

    def measured(self, round: int) -> dict[str, Any]:
        """What was measured on the model of a round, by the name of the measurement."""
        return {name: rounds[str(round)] for name, rounds in self._all_measured().items() if str(round) in rounds}

    def write_measured(self, round: int, measured: Mapping[str, Any]) -> None:
        """Add measurements on the model of a round, by name, to those that other processes may have added."""
        with self.lock(_PATIENCE):
            known = self._all_measured()
            for name, content in measured.items():
                known[name] = {**known.get(name, {}), str(round): content}
            write_whole(self.path / _MEASURED, seal(known))

    def diagnosis(self) -> dict[str, Any] | None:
        """The last diagnosis of the run's model, None if there is none; it is too long to be condensed with the run."""
        return self._extra(_DIAGNOSIS)

    def write_diagnosis(self, content: dict[str, Any]) -> None:
        write_whole(self.path / _DIAGNOSIS, seal(content))

    def damaged_extras(self) -> list[str]:
        """A note for each optional file that exists but cannot be read; it counts as absent."""
        writers = {
            _DIAGNOSIS: f"`fedskew diagnose {self.path.name[:8]}` writes it again",
            _MEASURED: "`fedskew paper run figure2` and the other figures write it again",
        }
        damaged = [name for name in writers if (self.path / name).exists() and self._extra(name) is None]
        return [f"{name} is damaged and was ignored; {writers[name]}" for name in damaged]

    def append_session(self, session: dict[str, Any]) -> None:
        write_whole(self.path / _SESSIONS, b"".join(map(_line, [*self.sessions(), session])))

    @contextmanager
    def lock(self, patience: float = 0.0) -> Iterator[None]:
        """Only one process works on a run at a time; wait this many seconds for another one."""
        from filelock import FileLock, Timeout  # it imports asyncio

        try:
            held = FileLock(self.path / "lock", thread_local=False).acquire(timeout=patience)
        except Timeout:
            raise StoreBusy(self._busy()) from None
        except OSError as error:
            raise self._unwritable(error) from error
        mine = os.getpid(), self.path.resolve()
        with held:
            _held.add(mine)
            try:
                yield
            finally:
                _held.discard(mine)

    def _busy(self) -> str:
        if (os.getpid(), self.path.resolve()) not in _held:
            return f"another process is working on run {self.path.name}"
        return (
            f"this process is already working on run {self.path.name}: an iterator of simulate that was left before "
            "its end holds it; call close() of that iterator, or let it run to its end"
        )

    def _all_measured(self) -> dict[str, Any]:
        return self._extra(_MEASURED) or {}

    def _extra(self, name: str) -> dict[str, Any] | None:
        """An optional file; None if it is absent or damaged."""
        try:
            return unseal(Measured if name == _MEASURED else Anything, _content(self.path / name))
        except (StoreError, Damaged):
            return None

    def _lines(self, path: Path, form: type) -> list[dict[str, Any]]:
        lines = _content(path).split(b"\n")[:-1] if path.exists() else []
        return [self._checked(form, line, _line_of(path, number)) for number, line in enumerate(lines, 1)]

    def _checked(self, form: type, text: bytes, where: Path | str) -> dict[str, Any]:
        try:
            return unseal(form, text)
        except Damaged as error:
            raise self._damaged(where, str(error)) from None

    def _damaged(self, where: Path | str, problem: str) -> StoreError:
        return StoreError(f"{where} is damaged: {problem}; {starting_over(self.path)}")


class Store:
    """A folder of runs."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    @classmethod
    def of(cls, given: "Store | Path | str | None") -> "Store | None":
        """A store as given, or the store in a folder; None for no store."""
        if isinstance(given, str | Path):
            return cls(given)
        if given is None or isinstance(given, Store):
            return given
        raise TypeError(f"store is {given!r}; allowed: a Store or the path of its folder")

    def folder(self, hash: str) -> Folder:
        """The folder of a run, which need not exist yet."""
        return Folder(self.root / hash)

    def find(self, beginning: str) -> Folder:
        """The only run whose hash begins like this. The path of its folder in this store also works."""
        if "/" in beginning and Path(beginning).parent.resolve() == self.root.resolve():
            beginning = Path(beginning).name
        names = [folder.path.name for folder in self if folder.path.name.startswith(beginning)]
        if len(names) == 1:
            return self.folder(names[0])
        if names:
            raise ValueError(f"{beginning!r} matches several runs: {', '.join(names[:5])}")
        listed = f"`fedskew runs list{naming_store(self.root)}` shows all runs"
        raise ValueError(f"there is no run {beginning!r} in {self.root}; {listed}")

    def __iter__(self) -> Iterator[Folder]:
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if _may_be_run(path):
                    yield Folder(path)

    def remove(self, folder: Folder) -> None:
        """Delete a run; `StoreBusy` if another process is working on it."""
        windows = sys.platform == "win32"  # on systems where the open lock can only be removed afterwards
        with folder.lock():
            shutil.rmtree(folder.path, ignore_errors=windows)
        if windows:
            shutil.rmtree(folder.path)


def _may_be_run(path: Path) -> bool:
    """Whether a folder holds a run; a folder without permission gives an error when it is read."""
    try:
        return (path / _RUN).is_file()
    except OSError:
        return True


def checkpoint_facts(path: Path) -> tuple[int, str | None]:
    """The round of a checkpoint and the checksum of its tensors, which earlier versions do not have."""
    try:
        with safe_open(regular(path), "np") as file:
            about = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise StoreError(f"the checkpoint {path} is damaged or cannot be read; {starting_over(path.parent)}") from error
    round = about.get("round", "")
    if not (round.isascii() and round.isdigit() and len(round) < 19 and about.keys() <= {"round", "checksum"}):
        raise damaged_checkpoint(path, "its header does not name its round")
    return int(round), about.get("checksum")


def damaged_checkpoint(path: Path, problem: str) -> StoreError:
    return StoreError(f"the checkpoint {path} is damaged: {problem}; {starting_over(path.parent)}")


def _line(content: Mapping[str, Any]) -> bytes:
    return seal(content) + b"\n"


def _content(path: Path) -> bytes:
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(str(error)) from error


def _line_of(path: Path, number: int) -> str:
    return f"{path}, line {number}"
