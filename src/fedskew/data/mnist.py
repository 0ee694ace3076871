"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017), from the official IDX files, compressed or not.

A file begins with two zero bytes, the type of its values (8: bytes) and the number of axes; then come the length of
each axis and the values, all big-endian. Both data sets have files of the same names, so each is looked for in its own
folder, `mnist/` or `fashion_mnist/`. Mean and deviation are those of the official training images.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.core.dataset import Dataset
from fedskew.core.files import reason, regular
from fedskew.data.places import find, notice_others
from fedskew.data.sources import SOURCES

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SIDE, _CLASSES, _BYTES = 28, 10, 8
_KINDS = {1: "labels", 3: "images"}
"""By the number of axes."""
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def mnist(data_dir: str | None = None) -> Dataset:
    """60,000 training and 10,000 test images of handwritten digits, 1x28x28."""
    return _loaded("mnist", 33.318421, 78.567490, tuple("0123456789"), data_dir)


def fashion_mnist(data_dir: str | None = None) -> Dataset:
    """60,000 training and 10,000 test images of clothes, 1x28x28."""
    return _loaded("fashion_mnist", 72.940352, 90.021182, _CLOTHES, data_dir)


def mnist_files(name: str, data_dir: str | None = None) -> list[Path]:
    """Training images and labels, then test images and labels."""
    return [find(name, [f"{file}.gz", file], data_dir, apart=True) for file in FILES]


def _loaded(name: str, mean: float, std: float, class_names: tuple[str, ...], data_dir: str | None) -> Dataset:
    files = mnist_files(name, data_dir)
    official = {source.file: source.bytes for source in SOURCES[name]} | {file: _unpacked(file) for file in FILES}
    notice_others(name, files, official)
    train, test = _pair(name, *files[:2]), _pair(name, *files[2:])
    return Dataset.of(name, train, test, _CLASSES, mean=(mean,), std=(std,), class_names=class_names)


def _unpacked(file: str) -> int:
    """The length of an official file that is not compressed."""
    examples = 60_000 if file.startswith("train") else 10_000
    return 16 + examples * _SIDE * _SIDE if "images" in file else 8 + examples


def _pair(name: str, images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    x, y = _values(name, images, 3), _values(name, labels, 1)
    if x.shape[1:] != (_SIDE, _SIDE):
        raise ValueError(f"{images}: images are {x.shape[1]}x{x.shape[2]}; allowed: {_SIDE}x{_SIDE}")
    if len(x) != len(y):
        raise ValueError(f"{images} has {len(x)} images, {labels} has {len(y)} labels")
    wrong = y[y >= _CLASSES]
    if len(wrong):
        raise ValueError(f"{labels} has label {wrong[0]}; allowed: 0..{_CLASSES - 1}")
    return x[:, None].copy(), y.astype(np.int64)


def _values(name: str, path: Path, axes: int) -> NDArray[np.uint8]:
    """The array of an IDX file of bytes."""
    try:
        content = gzip.decompress(regular(path).read_bytes()) if path.suffix == ".gz" else regular(path).read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(_damaged(name, path, reason(error))) from error
    start = 4 + 4 * axes
    if content[:4] != _magic(axes) or len(content) < start:
        other = 4 - axes
        if content[:4] == _magic(other):
            raise ValueError(f"{path} holds {_KINDS[other]}, not {_KINDS[axes]}; the two files may be swapped")
        begins = f"it begins with {content[:4].hex() or 'nothing'}, a file of {_KINDS[axes]} with {_magic(axes).hex()}"
        raise ValueError(_damaged(name, path, begins if content[:4] != _magic(axes) else "it ends in its header"))
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != math.prod(shape):
        held = f"it says {' x '.join(map(str, shape))} and holds {len(content) - start:,} bytes"
        raise ValueError(_damaged(name, path, held))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _magic(axes: int) -> bytes:
    return bytes((0, 0, _BYTES, axes))


def _damaged(name: str, path: Path, why: str) -> str:
    return f"{path} is truncated, damaged or not an IDX file ({why}); remove it, then `fedskew data fetch {name}`"
