"""The official files: download, check, extract and list them.

A download goes to `<file>.part`, and resumes there after an interruption; it gets its name once its checksum is the
official one. An archive is extracted into a hidden folder, which gets its name once it is complete. Only one process at
a time fetches a data set; another waits and finds it done.
"""

import gzip
import posixpath
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from fedskew.core.files import sha256_of
from fedskew.core.spec import unknown
from fedskew.data.download import FetchError, download, part_of, size_of
from fedskew.data.places import data_root
from fedskew.data.sources import MANUAL, SOURCES, Source

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Status:
    """What is known about a file or folder: its bytes, the address it comes from, and a state.

    The state is present, partial or missing; after a check it is good, other checksum (rebuilt, changed or cut short),
    missing from its folder, or not checked (a form without an official checksum here).
    """

    name: str
    path: Path
    source: str
    state: str
    bytes: int


def fetch(
    name: str, data_dir: str | None = None, mirror: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download the missing files of a data set; returns the files, or the folders extracted from them.

    `mirror` is an address under which the files have their official names. `progress` is called with how many bytes of
    all files have arrived, and how many there will be.
    """
    root = data_root(data_dir)
    if name in MANUAL:
        address, steps = MANUAL[name]
        steps = steps.format(address=address, folder=root / name)
        raise ValueError(f"{name} has no official file to fetch; {steps}")
    if name not in SOURCES:
        raise ValueError(unknown("data set to fetch", name, {**SOURCES, **MANUAL}))
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        raise ValueError(f"mirror is {mirror!r}; allowed: an address that begins with http:// or https://")
    total, before, paths = sum(source.bytes for source in SOURCES[name]), 0, []

    def report(here: int) -> None:
        if progress is not None:
            progress(before + here, total)

    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{name}.lock"):
            for source in SOURCES[name]:
                paths.append(_fetch(name, source, root, mirror, report))
                report(source.bytes)
                before += source.bytes
    except OSError as error:
        where = error.filename or root.absolute()
        raise FetchError(
            f"cannot write to {where}: {error.strerror or error}; set --data-dir to another place"
        ) from error
    return paths


def verify(data_dir: str | None = None) -> list[Status]:
    """Check every existing file against its official sha256."""
    root = data_root(data_dir)
    found = []
    for name, sources in SOURCES.items():
        for source in sources:
            if source.folder is not None:
                found += _checked_folder(name, source, root)
            found += _checked_file(name, source, root)
            others = [_place(name, form, root) for form in source.others]
            found += [_status(name, path, source, "not checked") for path in others if path.exists()]
    return found


def listing(data_dir: str | None = None) -> list[Status]:
    """The state of each data set, without reading it: the first of the forms that its loader looks for."""
    root = data_root(data_dir)
    found = []
    for name, sources in SOURCES.items():
        for source in sources:
            forms = [_place(name, form, root) for form in (source.folder, source.file, *source.others) if form]
            path = next((path for path in forms if path.exists()), _place(name, source.file, root))
            if path.exists():
                found.append(_status(name, path, source, "present"))
            elif part_of(path).exists():
                found.append(_status(name, part_of(path), source, "partial"))
            else:
                found.append(_status(name, path, source, "missing"))
    for name, (address, _) in MANUAL.items():
        state = "present" if (root / name).exists() else "missing"
        found.append(Status(name, root / name, address, state, size_of(root / name)))
    return found


def _fetch(name: str, source: Source, root: Path, mirror: str | None, report: Callable[[int], None]) -> Path:
    """One official file, or the folder that its archive holds."""
    folder = _place(name, source.folder, root) if source.folder is not None else None
    if folder is not None and folder.exists():
        _refuse_other(_checked_folder(name, source, root))
        return folder
    path = _place(name, source.file, root)
    if path.exists():
        _refuse_other(_checked_file(name, source, root))
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        download(f"{mirror.rstrip('/')}/{source.file}" if mirror else source.url, source, path, report)
    if folder is None:
        return path
    _extract(path, folder)
    return folder


def _extract(archive: Path, folder: Path) -> None:
    """Extract the one folder of an archive; a member outside it is refused, and then nothing is kept."""

    def inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        if posixpath.normpath(member.name).partition("/")[0] != folder.name:
            raise FetchError(f"{archive} is refused: it contains {member.name}, which is not in {folder.name}/")
        return tarfile.data_filter(member, path)

    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with tarfile.open(archive) as content:
            content.extractall(temporary, filter=inside)
        (temporary / folder.name).replace(folder)
    except tarfile.FilterError as error:
        raise FetchError(f"{archive} is refused: {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, FileNotFoundError) as error:
        raise FetchError(f"{archive} is damaged, or has no {folder.name}/ ({error})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _checked_file(name: str, source: Source, root: Path) -> list[Status]:
    path = _place(name, source.file, root)
    return [_checked(name, path, source, source.sha256)] if path.exists() else []


def _checked_folder(name: str, source: Source, root: Path) -> list[Status]:
    folder = _place(name, source.folder or "", root)
    files = source.files if folder.exists() else {}
    return [_checked(name, folder / file, source, sha256) for file, sha256 in files.items()]


def _checked(name: str, path: Path, source: Source, sha256: str) -> Status:
    if not path.is_file():
        return _status(name, path, source, "missing")
    return _status(name, path, source, "good" if sha256_of(path) == sha256 else "other checksum")


def _refuse_other(checked: list[Status]) -> None:
    for status in checked:
        if status.state != "good":
            raise FetchError(f"{status.path} is not the official file ({status.state}); move it away and fetch again")


def _status(name: str, path: Path, source: Source, state: str) -> Status:
    return Status(name, path, source.url, state, size_of(path))


def _place(name: str, form: str, root: Path) -> Path:
    """Where a file or folder is: in the data folder, or in the data set's own folder there."""
    own = root / name.removesuffix("-extra") / form
    if any(source.apart for source in SOURCES[name]):
        return own
    return own if own.exists() and not (root / form).exists() else root / form
