"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from the official files: 60,000 images of 3x32x32, a sixth for testing.

The binary version is preferred: records of one label byte (CIFAR-100: coarse, then fine) and 3,072 pixels, channel by
channel. The Python version is read by an unpickler that accepts only plain values and arrays of bytes, and runs no
code. Archives are read in place. Means and deviations are those of the training images.
"""

import gzip
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedskew.core.checks import check_choice
from fedskew.core.dataset import Dataset
from fedskew.core.files import reason, regular
from fedskew.data.places import find
from fedskew.data.plain_pickle import ByteArray, as_text, unpickle_plain

BATCH = 10_000
_PIXELS, _CHUNK = 3072, 1000
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True)
class _Layout:
    """How a data set is stored: so many bytes of labels before each image of a file; the last file is for testing."""

    name: str
    files: tuple[str, ...]
    label_bytes: int
    label_at: int
    label_key: str
    names_file: str
    meta_file: str
    names_key: str
    classes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


_ARCHIVES = {
    "cifar10": {"cifar-10-batches-bin": "cifar-10-binary", "cifar-10-batches-py": "cifar-10-python"},
    "cifar100": {"cifar-100-binary": "cifar-100-binary", "cifar-100-python": "cifar-100-python"},
}
"""The folders of a data set, and the archive that each comes in."""


def cifar10(data_dir: str | None = None) -> Dataset:
    """50,000 training images, 5,000 of each of ten classes."""
    layout = _Layout(
        name="cifar10",
        files=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"),
        label_bytes=1,
        label_at=0,
        label_key="labels",
        names_file="batches.meta.txt",
        meta_file="batches.meta",
        names_key="label_names",
        classes=10,
        mean=(125.306918, 122.950394, 113.865383),
        std=(62.993219, 62.088708, 66.704900),
    )
    return _load("cifar10", layout, data_dir)


def cifar100(labels: str = "fine", data_dir: str | None = None) -> Dataset:
    """50,000 training images: 500 of each of 100 classes (`fine`), or 2,500 of each of 20 groups (`coarse`)."""
    check_choice("cifar100: labels", labels, ("fine", "coarse"))
    layout = _Layout(
        name="cifar100",
        files=("train", "test"),
        label_bytes=2,
        label_at=1 if labels == "fine" else 0,
        label_key=f"{labels}_labels",
        names_file=f"{labels}_label_names.txt",
        meta_file="meta",
        names_key=f"{labels}_label_names",
        classes=100 if labels == "fine" else 20,
        mean=(129.304166, 124.069963, 112.434050),
        std=(68.170243, 65.391808, 70.418370),
    )
    return _load("cifar100" if labels == "fine" else "cifar100:coarse", layout, data_dir)


def cifar_files(name: str, data_dir: str | None = None) -> list[Path]:
    """The archive that cifar10 or cifar100 is read from, or all files of its folder."""
    place = find(name, list(_places(name)), data_dir)
    return sorted(place.iterdir()) if place.is_dir() else [place]


def _places(name: str) -> dict[str, str]:
    """Folders and archives to look for, in this order, each with the folder that it is or contains."""
    return {place: folder for folder, archive in _ARCHIVES[name].items() for place in (folder, f"{archive}.tar.gz")}


def _load(name: str, layout: _Layout, data_dir: str | None) -> Dataset:
    place = find(layout.name, list(_places(layout.name)), data_dir)
    try:
        x, y, class_names = _read(place, layout)
    except _DAMAGE as error:
        raise ValueError(
            f"{place} is truncated or damaged ({reason(error)}); remove it, then `fedskew data fetch {layout.name}`"
        ) from error
    x, last = x.reshape(-1, 3, 32, 32), 5 * BATCH
    train, test = (x[:last], y[:last]), (x[last:], y[last:])
    about = {"mean": layout.mean, "std": layout.std, "class_names": class_names}
    return Dataset.of(name, train, test, layout.classes, **about)


def _read(place: Path, layout: _Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...] | None]:
    """Pixels [n, 3072] and labels of all files, training first, and the class names if their file exists."""
    folder = _places(layout.name)[place.name]
    binary = not folder.endswith(("py", "python"))
    x, y = np.empty((6 * BATCH, _PIXELS), np.uint8), np.empty(6 * BATCH, np.int64)
    step = 5 * BATCH // (len(layout.files) - 1)
    parts = {
        f"{file}.bin" if binary else file: slice(i * step, min((i + 1) * step, 6 * BATCH))
        for i, file in enumerate(layout.files)
    }
    meta = layout.names_file if binary else layout.meta_file
    class_names, missing = None, set(parts)
    for file, size, stream in _stored(place, folder, {*parts, meta}):
        where = f"{place}/{file}"
        if file == meta:
            class_names = _names(where, stream, layout, binary)
            continue
        missing.discard(file)
        if binary:
            _fill_from_records(where, stream, size, layout, x[parts[file]], y[parts[file]])
        else:
            _fill_from_pickle(where, stream, layout, x[parts[file]], y[parts[file]])
    if missing:
        raise FileNotFoundError(
            f"{place} has no {', '.join(sorted(missing))}; remove it, then `fedskew data fetch {layout.name}`"
        )
    return x, y, class_names


def _stored(place: Path, folder: str, wanted: set[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, length and content of the wanted files of a folder, or of an archive in its own order."""
    if place.is_dir():
        for file in sorted(wanted):
            if (place / file).exists():
                with regular(place / file).open("rb") as stream:
                    yield file, os.fstat(stream.fileno()).st_size, stream
        return
    with tarfile.open(regular(place)) as archive:
        for member in archive:
            parent, file = posixpath.split(posixpath.normpath(member.name))
            wished = member.isfile() and parent == folder and file in wanted
            if wished and (content := archive.extractfile(member)):
                yield file, member.size, content


def _fill_from_records(
    where: str, stream: IO[bytes], size: int, layout: _Layout, x: NDArray[np.uint8], y: NDArray[np.int64]
) -> None:
    width = layout.label_bytes + _PIXELS
    if size != len(x) * width:
        raise ValueError(f"{where} has {size:,} bytes; {len(x):,} records of {width:,} bytes need {len(x) * width:,}")
    for start in range(0, len(x), _CHUNK):
        stop = min(start + _CHUNK, len(x))
        raw = stream.read((stop - start) * width)
        if len(raw) != (stop - start) * width:
            raise EOFError(f"{where} ends early")
        records = np.frombuffer(raw, np.uint8).reshape(-1, width)
        x[start:stop] = records[:, layout.label_bytes :]
        y[start:stop] = records[:, layout.label_at]
    if y.max() >= layout.classes:
        raise ValueError(f"{where} has label {y.max()}; allowed: 0..{layout.classes - 1}")


def _fill_from_pickle(
    where: str, stream: IO[bytes], layout: _Layout, x: NDArray[np.uint8], y: NDArray[np.int64]
) -> None:
    content = unpickle_plain(where, stream)
    data, labels = content.get("data"), content.get(layout.label_key)
    if not isinstance(data, ByteArray) or data.array.shape != x.shape:
        shape = data.array.shape if isinstance(data, ByteArray) else "missing"
        raise ValueError(f"{where}: data is {shape}; {x.shape} is needed")
    if not isinstance(labels, list) or len(labels) != len(y):
        raise ValueError(f"{where}: {layout.label_key} is not a list of {len(y):,} labels")
    for label in labels:
        if type(label) is not int or not 0 <= label < layout.classes:
            raise ValueError(f"{where} has label {label!r}; allowed: 0..{layout.classes - 1}")
    x[:], y[:] = data.array, labels


def _names(where: str, stream: IO[bytes], layout: _Layout, binary: bool) -> tuple[str, ...]:
    if binary:
        names = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    else:
        found = unpickle_plain(where, stream).get(layout.names_key)
        names = [as_text(name) for name in found] if isinstance(found, list) else []
    if len(names) != layout.classes:
        raise ValueError(f"{where} names {len(names)} classes; {layout.classes} are needed")
    return tuple(names)
