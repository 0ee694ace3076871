"""Download one file: resumed after an interruption, and kept only if its checksum is right."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedskew.core.files import sha256_of
from fedskew.data.sources import Source

_ATTEMPTS, _TIMEOUT, _CHUNK = 3, (10.0, 60.0), 1 << 16


class FetchError(Exception):
    """A download failed. The message says why and what to do."""


def download(url: str, source: Source, path: Path, report: Callable[[int], None]) -> None:
    """Continue where `.part` ends, and again if the connection breaks; then give the file its name."""
    part, size = part_of(path), source.bytes
    need, free = size - size_of(part) + source.unpacked, shutil.disk_usage(path.parent).free
    if need > free:
        raise FetchError(f"{path.parent.absolute()} has {free / 1e6:,.0f} MB free; {need / 1e6:,.0f} MB are needed")
    for _ in range(_ATTEMPTS):
        if size_of(part) > size:
            part.unlink()
        if size_of(part) < size:
            _continue(url, part, size, report)
    if size_of(part) != size:
        raise FetchError(
            f"{url} stopped at {size_of(part):,} of {size:,} bytes after {_ATTEMPTS} attempts; fetch again to resume"
        )
    if sha256_of(part) != source.sha256:
        part.unlink()
        raise FetchError(
            f"the file from {url} does not have the official sha256 {source.sha256}; it was removed: "
            "try again, or give another --mirror"
        )
    part.replace(path)


def _continue(url: str, part: Path, size: int, report: Callable[[int], None]) -> None:
    """Request the bytes that `part` lacks and append them; start over if the server does not support ranges."""
    import requests
    from urllib3.exceptions import HTTPError

    have = size_of(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        answer = requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT)
    except requests.RequestException as error:
        raise FetchError(f"cannot reach {url} ({_reason(error)}); give another address with --mirror") from error
    with answer:
        if answer.status_code == 416:
            part.unlink()
            return
        if answer.status_code not in (200, 206):
            raise FetchError(f"{url} answered {answer.status_code} {answer.reason}; give another address with --mirror")
        have = have if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
        announced = have + int(answer.headers.get("Content-Length", size - have))
        if announced != size:
            raise FetchError(f"{url} has {announced:,} bytes, the official file {size:,}; give another --mirror")
        with part.open("ab" if have else "wb") as file, suppress(HTTPError):
            while have < size and (piece := answer.raw.read(min(_CHUNK, size - have), decode_content=False)):
                file.write(piece)
                have += len(piece)
                report(have)


def _reason(error: BaseException) -> str:
    """The root cause of an error from requests."""
    while error.__context__ is not None:
        error = error.__context__
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def size_of(path: Path) -> int:
    """The length of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0
