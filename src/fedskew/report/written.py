"""Folders of results that a later call of the same command writes again. A file in the folder lists what the command
wrote there, so that it replaces and removes its own files only, and only as it left them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fedskew.core.files import sha256_of, write_whole


@dataclass(frozen=True)
class Written:
    """What a command's results in a folder are `about`, and the checksum of each file by its path in the folder; None
    while it is being written."""

    command: str
    about: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, command: str, folder: Path) -> "Written":
        """Nothing if there is no list, or it cannot be read."""
        try:
            found = json.loads(_list(command, folder).read_bytes())
            about, files = dict(found["about"]), dict(found["files"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return cls(command)
        return cls(command, about, {name: digest for name, digest in files.items() if _is_inside(name)})

    def keep(self, folder: Path) -> None:
        write_whole(
            _list(self.command, folder), json.dumps({"about": self.about, "files": self.files}, indent=1).encode()
        )

    def is_ours(self, folder: Path, path: Path) -> bool:
        """Whether a file is as the command left it."""
        name = _name(folder, path)
        return name in self.files and self.files[name] in (None, sha256_of(path))


@dataclass
class Replaced:
    """Files `made` by the current call, and earlier ones that were `kept` because they were changed since."""

    made: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)


def check_replaceable(command: str, folder: Path, targets: Iterable[Path], option: str) -> None:
    """Refuse to replace what the command did not write, or what was changed since. `option` names another folder."""
    earlier = Written.of(command, folder)
    for path in targets:
        if path.is_file() and not earlier.is_ours(folder, path):
            raise ValueError(
                f"{path} would be lost: it was changed since `fedskew {command}` wrote it, or was never written by it; "
                f"move it away, or choose another folder with {option}"
            )


@contextmanager
def replacing_results(
    command: str, folder: Path, about: Mapping[str, Any], targets: Iterable[Path], option: str
) -> Iterator[Replaced]:
    """The caller writes some of the targets and lists them as `made`; earlier files that are not among them go. After
    an interruption the targets count as the command's own."""
    listed = list(targets)
    check_replaceable(command, folder, listed, option)
    folder.mkdir(parents=True, exist_ok=True)
    earlier, found = Written.of(command, folder), Replaced()
    Written(command, dict(about), {**earlier.files, **{_name(folder, path): None for path in listed}}).keep(folder)
    try:
        yield found
    except BaseException:
        with suppress(OSError):
            Written(command, dict(about), {**earlier.files, **_digests(folder, listed)}).keep(folder)
        raise
    made = _digests(folder, found.made)
    left = {name: digest for name, digest in earlier.files.items() if name not in made and (folder / name).is_file()}
    for name, digest in left.items():
        if digest is not None:
            _remove(folder, name, digest, found)
    unsure = {name: None for name, digest in left.items() if digest is None}
    Written(command, dict(about), {**unsure, **made}).keep(folder)


def _remove(folder: Path, name: str, digest: str, found: Replaced) -> None:
    """A file as we left it, and its folder if nothing else is there."""
    path = folder / name
    if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()) or sha256_of(path) != digest:
        found.kept.append(path)
        return
    path.unlink()
    if path.parent != folder and not any(path.parent.iterdir()):
        path.parent.rmdir()


def _digests(folder: Path, paths: Iterable[Path]) -> dict[str, str | None]:
    return {_name(folder, path): sha256_of(path) for path in paths if path.is_file()}


def _list(command: str, folder: Path) -> Path:
    return folder / f".fedskew-{command}.json"


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _is_inside(name: str) -> bool:
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
