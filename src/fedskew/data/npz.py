"""The user's own arrays in one .npz file: `x_train y_train x_test y_test`, and optionally the clients.

Examples are uint8 images, normalised with the mean and standard deviation of each channel of the training images, or
floating-point features, used unchanged. An array of four axes holds images: the shorter of its second and last axis is
the channels ([n, H, W, C] or [n, C, H, W]; equal ones are refused), which are moved to the front. A uint8 array of
three axes is greyscale images [n, H, W]; any other shape is features.

Labels are the integers 0..C-1, each with a training example. `client` (or `client_train`) names the owner of each
training example, `client_test` that of each test example: integers or strings, numbered 0, 1, ... in sorted order.
"""

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedskew.core.dataset import Dataset
from fedskew.core.files import regular, sha256_of
from fedskew.data.images import channel_statistics
from fedskew.data.places import user_path

_NEEDED = ("x_train", "y_train", "x_test", "y_test")
_LARGEST = float(np.finfo(np.float32).max)
_CHANNELS = (1, 3, 4)
_KINDS = "allowed: uint8 images or floating-point features; whole numbers such as those of words as float32"
_CLIENTS = ("client", "client_train", "client_test")
Array = NDArray[Any]
Ints = NDArray[np.int64]


def npz(path: str) -> Dataset:
    return of_arrays(f"npz:{path}", path, checked(path, _loaded(path)))


def of_arrays(name: str, path: str, arrays: dict[str, Array], *, channels_first: bool = False) -> Dataset:
    """A data set from the arrays of such a file; messages call it `path`."""
    x_train, x_test = (_examples(path, part, arrays[part], channels_first) for part in ("x_train", "x_test"))
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        shown = " and ".join(f"{x.dtype} {list(x.shape[1:])}" for x in (x_train, x_test))
        raise ValueError(f"{path}: examples of x_train and x_test differ: {shown}")
    y_train, y_test, num_classes = _labels(path, arrays)
    client_train, client_test = _owners(path, arrays)
    mean, std = None, None
    if x_train.dtype == np.uint8:
        mean, std = channel_statistics(x_train if x_train.ndim == 4 else x_train[:, None])
    about = {"mean": mean, "std": std, "client_train": client_train, "client_test": client_test}
    return Dataset.of(name, (x_train, y_train), (x_test, y_test), num_classes, **about)


def count_clients(path: str) -> int | None:
    """How many clients a file names; None if it names none."""
    arrays = _loaded(path, ("client", "client_train"))
    return next((len(np.unique(owners)) for owners in arrays.values()), None)


def own_examples(path: str) -> tuple[Array, Ints]:
    """The `x_train` and `y_train` of a file that belongs to one client, which may lack classes and test examples."""
    return _own(path, "train", _loaded(path, ("x_train", "y_train")))


def own_tests(path: str) -> tuple[Array, Ints] | None:
    """The `x_test` and `y_test` of such a file, if it has any."""
    found = _loaded(path, ("x_test", "y_test"))
    return _own(path, "test", found) if any(array.size for array in found.values()) else None


def _own(path: str, part: str, arrays: Mapping[str, Array]) -> tuple[Array, Ints]:
    names = f"x_{part}", f"y_{part}"
    absent = [name for name in names if name not in arrays]
    if absent:
        raise ValueError(f"{path} has no {', '.join(absent)}; a client's own file needs {' and '.join(names)}")
    x, y = (arrays[name] for name in names)
    shown = f"{path}: {names[1]} is {y.dtype} {list(y.shape)} for examples {list(x.shape)}"
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"{shown}; allowed: integers of one axis, the number of each example's class")
    if x.ndim < 2 or len(x) != len(y):
        raise ValueError(f"{shown}; allowed: as many as examples, which have two axes or more")
    if not len(y):
        raise ValueError(f"{shown}; allowed: one example or more")
    return _examples(path, names[0], x), y.astype(np.int64)


def fingerprint(path: str) -> str:
    """The sha256 of the file's bytes."""
    return sha256_of(_existing(path))


def _existing(path: str) -> Path:
    file = user_path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file.absolute()}; npz:PATH takes a file written by numpy.savez")
    return regular(file)


def checked(path: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays we know, of the right lengths."""
    absent = [name for name in _NEEDED if name not in arrays]
    if absent:
        raise ValueError(f"{path} has no {', '.join(absent)}; needed: {', '.join(_NEEDED)}")
    for name, array in arrays.items():
        if name not in ("x_train", "x_test") and array.ndim != 1:
            raise ValueError(f"{path}: {name} has the shape {list(array.shape)}; allowed: one axis")
    for name, array in arrays.items():
        examples = arrays["x_test" if name.endswith("test") else "x_train"]
        if examples.ndim < 2 or len(array) != len(examples):
            raise ValueError(f"{path}: {name} has the shape {list(array.shape)} for examples {list(examples.shape)}")
    return arrays


def _loaded(path: str, wanted: Sequence[str] = (*_NEEDED, *_CLIENTS)) -> dict[str, Array]:
    """The wanted arrays of a file. Object arrays would be unpickled, so they are refused."""
    file, name = _existing(path), "its list of arrays"
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{path} is not an .npz file, or an incomplete one; write it with numpy.savez")
    loaded = {}
    try:
        with np.load(file, allow_pickle=False) as archive:
            for name in [known for known in wanted if known in archive.files]:
                loaded[name] = _array(archive, name)
    except MemoryError as error:
        raise ValueError(f"{path}: {name} claims to be larger than memory") from error
    except Exception as error:  # a damaged header can fail in any way that Python's parser does
        why = "it holds objects, which are refused" if "allow_pickle" in str(error) else "it is damaged or cut short"
        raise ValueError(f"{path}: {name} cannot be read: {why}; write it with numpy.savez") from error
    return loaded


def _array(archive: Any, name: str) -> Array:
    """A member of an archive; numpy returns the bytes of one that is not an array."""
    array = archive[name]
    if not isinstance(array, np.ndarray):
        raise TypeError(name)
    return array


def _examples(path: str, name: str, x: Array, channels_first: bool = False) -> Array:
    """Stored values with channels first: uint8, or float32."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise ValueError(f"{path}: {name} holds {x.dtype}; {_KINDS}")
    if not math.prod(x.shape):
        raise ValueError(f"{path}: {name} is empty: its shape is {list(x.shape)}")
    if x.dtype.kind == "f":
        x = _finite(path, name, x)
    if x.ndim == 4 and channels_first:
        _check_channels_first(path, name, x)
    elif x.ndim == 4:
        if x.shape[1] == x.shape[3]:
            raise ValueError(
                f"{path}: {name} {list(x.shape)} could be [n, H, W, C] or [n, C, H, W]; axes 1 and 3 must differ"
            )
        x = x if x.shape[1] < x.shape[3] else x.transpose(0, 3, 1, 2)
    elif x.ndim == 3 and x.dtype == np.uint8:
        x = x[:, None]
    return np.ascontiguousarray(x)


def _check_channels_first(path: str, name: str, x: Array) -> None:
    """Refuse what looks like [n, H, W, C]. Bytes are images; numbers may be maps of features, unless they are square
    only with channels last."""
    plausible = x.dtype == np.uint8 or x.shape[1] == x.shape[2]
    if plausible and x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS:
        raise ValueError(
            f"{path}: {name} {list(x.shape)} looks like [n, H, W, C]; allowed: tensors with channels first, "
            "[n, C, H, W], for example x.permute(0, 3, 1, 2)"
        )


def _finite(path: str, name: str, x: Array) -> Array:
    """The values as float32; an error names the position of the first that is not finite."""
    with np.errstate(over="ignore"):
        kept = x.astype(np.float32, copy=False)
    wrong = np.argwhere(~np.isfinite(kept))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(f"{path}: {name}{list(at)} is {x[at]}; allowed: finite numbers up to {_LARGEST:.2e}")
    return kept


def _labels(path: str, arrays: dict[str, Array]) -> tuple[Ints, Ints, int]:
    for name in ("y_train", "y_test"):
        if arrays[name].dtype.kind not in "iu":
            raise ValueError(f"{path}: {name} holds {arrays[name].dtype}; allowed: integers 0..C-1")
    present = np.unique(arrays["y_train"])
    wrong = np.flatnonzero(present != np.arange(len(present)))
    if len(wrong):
        raise ValueError(
            f"{path}: y_train has label {present[wrong[0]]} but not {wrong[0]}; allowed: 0..C-1 without gaps"
        )
    classes = len(present)
    for label in (int(arrays["y_test"].min()), int(arrays["y_test"].max())):
        if not 0 <= label < classes:
            raise ValueError(f"{path}: y_test has label {label}, outside the 0..{classes - 1} of y_train")
    return arrays["y_train"].astype(np.int64), arrays["y_test"].astype(np.int64), classes


def _owners(path: str, arrays: dict[str, Array]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Client numbers 0, 1, ... by the sorted ids of those who have training examples."""
    if "client" in arrays and "client_train" in arrays:
        raise ValueError(f"{path} has both client and client_train; they mean the same, keep one")
    train, test = arrays.get("client", arrays.get("client_train")), arrays.get("client_test")
    if train is None:
        if test is not None:
            raise ValueError(f"{path} has client_test but no client_train")
        return None, None
    for ids in (train, test):
        if ids is not None and ids.dtype.kind not in "iuU":
            raise ValueError(f"{path}: clients are {ids.dtype}; allowed: integers or strings")
    known, numbers = np.unique(train, return_inverse=True)
    if test is None:
        return torch.from_numpy(numbers), None
    strange = test[~np.isin(test, known)]
    if len(strange):
        raise ValueError(f"{path}: client {strange[0]} of client_test has no training example")
    return torch.from_numpy(numbers), torch.from_numpy(np.searchsorted(known, test))
