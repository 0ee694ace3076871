"""SVHN, cropped digits of house numbers (Netzer et al., 2011), from the official .mat files.

`X` is [32, 32, 3, n] bytes and `y` holds 1..10, where 10 is the digit 0. Mean and deviation are those of
train_32x32.mat, also with the extra images.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.core.dataset import Dataset
from fedskew.core.files import reason
from fedskew.data.places import data_root, find, notice_others
from fedskew.data.sources import SOURCES


def svhn(extra: bool = False, data_dir: str | None = None) -> Dataset:
    """73,257 training and 26,032 test images of 3x32x32; `extra` appends 531,131 easier ones to the training images."""
    *train, test = svhn_files(extra, data_dir)
    official = {source.file: source.bytes for name in ("svhn", "svhn-extra") for source in SOURCES[name]}
    notice_others("svhn", [*train, test], official)
    mean, std = (111.608937, 113.161275, 120.565128), (50.497682, 51.258984, 50.244216)
    about = {"mean": mean, "std": std, "class_names": tuple("0123456789")}
    return Dataset.of("svhn:extra=on" if extra else "svhn", _load(train), _load([test]), 10, **about)


def svhn_files(extra: bool = False, data_dir: str | None = None) -> list[Path]:
    """The files of the training images, then that of the test images."""
    train, test = (find("svhn", [f"{part}_32x32.mat"], data_dir) for part in ("train", "test"))
    return [train, *([_extra(data_dir)] if extra else []), test]


def _extra(data_dir: str | None) -> Path:
    try:
        return find("svhn", ["extra_32x32.mat"], data_dir)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"svhn:extra=on needs extra_32x32.mat, which is neither in {data_root(data_dir).absolute()} nor in svhn/ "
            "there; `fedskew data fetch svhn-extra` gets it (1.3 GB)"
        ) from None


def _load(paths: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [n, 3, 32, 32] and digits of several files, one after another."""
    sizes = [_size(path) for path in paths]
    x, y = np.empty((sum(sizes), 3, 32, 32), np.uint8), np.empty(sum(sizes), np.int64)
    start = 0
    for path, size in zip(paths, sizes, strict=True):
        _fill(path, x[start : start + size], y[start : start + size])
        start += size
    return x, y


def _size(path: Path) -> int:
    """How many images a file claims to have."""
    from scipy.io import whosmat

    try:
        shapes = {name: shape for name, shape, _ in whosmat(path)}
    except PermissionError:
        raise
    except Exception as error:
        raise ValueError(_damaged(path, reason(error))) from error
    images, labels = shapes.get("X"), shapes.get("y")
    if images is None or labels is None:
        raise ValueError(_damaged(path, f"it has {', '.join(shapes) or 'no variable'}, not X and y"))
    n = images[-1]
    if images != (32, 32, 3, n) or labels not in ((n, 1), (1, n)):
        raise ValueError(f"{path}: X is {images} and y is {labels}; allowed: (32, 32, 3, n) and (n, 1)")
    return int(n)


def _fill(path: Path, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:
        raise ValueError(_damaged(path, reason(error))) from error
    images, labels = content["X"], content["y"].reshape(-1)
    if images.dtype != np.uint8:
        raise ValueError(f"{path}: X is {images.dtype}; allowed: uint8")
    wrong = labels[~np.isin(labels, np.arange(1, 11))]
    if len(wrong):
        raise ValueError(f"{path} has label {wrong[0]}; allowed: 1..10, where 10 is the digit 0")
    x[:], y[:] = images.transpose(3, 2, 0, 1), labels % 10


def _damaged(path: Path, why: str) -> str:
    return f"{path} is truncated, damaged or not a MATLAB 5 file ({why}); remove it, then `fedskew data fetch svhn`"
