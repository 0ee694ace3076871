"""Reading the user's files: regular ones alone, text as UTF-8, and every failure names the file."""

import json
import os
import stat
import threading
import tomllib
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
"""Errors whose words are for whoever wrote the reader."""


def regular(path: str | Path) -> Path:
    """The path of a regular file. Reading a pipe would wait for ever, and a device may have no end."""
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
    """Refuse to write where something is that is no regular file: a pipe would be waited for, a device replaced."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # nothing is there, or writing says what is wrong
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_kind(mode)}; allowed: a new file, or a regular one to write over")


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def read_text(path: str | Path) -> str:
    """A file of UTF-8, with or without a byte-order mark."""
    with naming(path):
        raw = regular(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from error


def read_toml(path: str | Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {reason(error)}") from error


def parse_json(path: str | Path, text: str) -> Any:
    """What the text of a file says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {reason(error)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its name when all of it is on the disk; of a failure nothing is left."""
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


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """A failure of the system inside is one of this file: a full disk names none, and a temporary file tells nobody."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def reason(error: Exception) -> str:
    """What a reader says of a damaged file: the first line of its words or, where those are Python's, ours."""
    said = str(error).partition("\n")[0].strip(" :")
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValueError) and "integer string conversion" in said:
        return "a number has too many digits"
    return said if said and not isinstance(error, _OF_PYTHON) else "its structure is broken"
