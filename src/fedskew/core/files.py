"""Reading files: only regular ones, text as UTF-8. Writing them: whole or not at all. Every error names the file."""

import hashlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}

_OF_PYTHON = (LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, AssertionError, UnicodeError)
"""Errors whose messages are meant for the authors of the reader."""


def regular(path: str | Path) -> Path:
    """The path of a regular file. Reading a pipe could wait forever, and a device may have no end."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_kind(mode)}; a regular file is needed")
    return Path(path)


def check_target(path: str | Path) -> None:
    """Refuse to overwrite anything but a regular file: a pipe would block, a device would be replaced."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # nothing is there, or writing will report the problem
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_kind(mode)}; allowed: a new file, or a regular one to overwrite")


def check_folder(path: Path) -> None:
    """Refuse a file where a folder is to be, or above it."""
    for place in (path, *path.parents):
        if place.exists():
            if not place.is_dir():
                raise ValueError(f"{place} is a file; allowed: a folder, which need not exist yet")
            return


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    check_folder(path)
    path.mkdir(parents=True, exist_ok=True)


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def read_text(path: str | Path) -> str:
    """A file of UTF-8, with or without a byte-order mark."""
    with naming(path):
        raw = regular(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from error


def read_toml(path: str | Path) -> dict[str, Any]:
    import tomllib

    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {reason(error)}") from error


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def parse_json(path: str | Path, text: str) -> Any:
    """Parse the text of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {reason(error)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name only when all of it is on disk; a failure leaves nothing behind."""
    check_target(path)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    with naming(path):
        try:
            with part.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write all of the content or none of it."""
    with replacing(path) as handle:
        handle.write(content)
    with naming(path):
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder last through a loss of power."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name this file in system errors raised inside: a full disk names no file, and a temporary name helps nobody."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def reason(error: Exception) -> str:
    """What a reader says about a damaged file: the first line of its message, or ours if it is one of Python's."""
    said = str(error).partition("\n")[0].strip(" :")
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValueError) and "integer string conversion" in said:
        return "a number has too many digits"
    return said if said and not isinstance(error, _OF_PYTHON) else "its structure is broken"
