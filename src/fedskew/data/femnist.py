"""FEMNIST: handwritten digits and letters, 62 classes (0-9, A-Z, a-z), every writer a client (Caldas et al., 2018).

Read from `femnist/` below the data folder, in the first of these forms that is there:

    train/*.json and test/*.json    LEAF's own split of each writer's examples (preprocess.sh -t sample)
    all_data/*.json                 LEAF before its split
    *.parquet                       columns image (a PNG), writer_id, character, as flwrlabs/femnist on Hugging Face

The last two are split here: of each writer's examples, in stored order (files by name), every tenth is for testing.

Who takes part: writers with at least 10 examples, of which one at least for training and one for testing, are sorted
by id (as text); `clients` of them are drawn without replacement from rng.stream(seed, "writers"); those drawn are
numbered 0, 1, ... in sorted order.
"""

import importlib
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedskew import rng
from fedskew.data.dataset import Dataset
from fedskew.data.images import channel_statistics
from fedskew.data.places import data_root

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LEAST = 10
"""Writers with fewer examples do not take part."""

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images [n, 1, 28, 28] and labels [n]
Writers = dict[str, Examples]
Choose = Callable[[Mapping[str, tuple[int, int]]], list[str]]  # numbers of training and test examples -> the chosen

_SIDE = 28
_PLACES = ("femnist", "femnist/data", ".", "data")
_COLUMNS = ("image", "writer_id", "character")


def femnist(seed: int, clients: int, data_dir: str | None = None) -> Dataset:
    """Mean and standard deviation are those of the chosen writers' training images."""
    root, read = _found(data_dir)
    train, test = read(root, lambda sizes: _chosen(sizes, seed, clients))
    x_train, y_train, client_train = _joined(train)
    x_test, y_test, client_test = _joined(test)
    mean, std = channel_statistics(x_train.numpy())
    return Dataset(
        name="femnist",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        num_classes=len(CHARACTERS),
        mean=mean,
        std=std,
        client_train=client_train,
        client_test=client_test,
        class_names=tuple(CHARACTERS),
    )


def _found(data_dir: str | None) -> tuple[Path, Callable[[Path, Choose], tuple[Writers, Writers]]]:
    """Where the files are and how that form is read."""
    base = data_root(data_dir)
    for root in (base / place for place in _PLACES):
        if all(any(root.glob(f"{part}/*.json")) for part in ("train", "test")):
            return root, _leaf_split
        if any(root.glob("all_data/*.json")):
            return root, _leaf_whole
        if any(root.glob("*.parquet")):
            return root, _parquet
    raise FileNotFoundError(
        f"femnist is not in {base.resolve()}: looked for train/*.json with test/*.json, all_data/*.json and *.parquet "
        f"in {', '.join(_PLACES)}; LEAF's preprocess.sh writes the first two, the last is flwrlabs/femnist of Hugging "
        "Face; --data-dir or FEDSKEW_DATA say where else to look"
    )


def _chosen(sizes: Mapping[str, tuple[int, int]], seed: int, clients: int) -> list[str]:
    able = sorted(writer for writer, parts in sizes.items() if sum(parts) >= LEAST and min(parts) > 0)
    if not 1 <= clients <= len(able):
        raise ValueError(
            f"femnist: clients is {clients}; allowed: 1 to {len(able)}, the writers here with {LEAST} examples or "
            "more, some to train and some to test with (LEAF: preprocess.sh -t sample)"
        )
    drawn = rng.stream(seed, "writers").choice(len(able), clients, replace=False)
    return [able[k] for k in sorted(drawn.tolist())]


def _leaf_split(root: Path, choose: Choose) -> tuple[Writers, Writers]:
    train, test = _leaf(root / "train"), _leaf(root / "test")
    chosen = choose({w: (len(train[w][1]), len(test[w][1])) for w in train.keys() & test.keys()})
    return {w: train[w] for w in chosen}, {w: test[w] for w in chosen}


def _leaf_whole(root: Path, choose: Choose) -> tuple[Writers, Writers]:
    whole = _leaf(root / "all_data")
    chosen = choose(_halves({w: len(y) for w, (_, y) in whole.items()}))
    return _tenths({w: whole[w] for w in chosen})


def _parquet(root: Path, choose: Choose) -> tuple[Writers, Writers]:
    """Two passes: one over the writers, one that decodes the images of those chosen."""
    sizes = Counter(str(writer) for _, rows in _rows(root, ("writer_id",)) for writer in rows["writer_id"].to_pylist())
    found: dict[str, list[tuple[NDArray[np.uint8], int]]] = {w: [] for w in choose(_halves(sizes))}
    for file, rows in _rows(root, _COLUMNS):
        mine = [i for i, writer in enumerate(rows["writer_id"].to_pylist()) if str(writer) in found]
        for row in rows.take(mine).to_pylist():
            found[str(row["writer_id"])].append((_pixels(file, row["image"]), _label(file, row["character"])))
    return _tenths({w: (np.stack([x for x, _ in rows]), np.array([y for _, y in rows])) for w, rows in found.items()})


def _halves(sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {writer: (size - size // 10, size // 10) for writer, size in sizes.items()}


def _tenths(whole: Writers) -> tuple[Writers, Writers]:
    """The tenth, twentieth, ... example of each writer is for testing."""
    train, test = {}, {}
    for writer, (x, y) in whole.items():
        tenth = np.arange(len(y)) % 10 == 9
        train[writer], test[writer] = (x[~tenth], y[~tenth]), (x[tenth], y[tenth])
    return train, test


def _joined(writers: Writers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All images, labels and owners, writer after writer."""
    sizes = torch.tensor([len(y) for _, y in writers.values()])
    x, y = (np.concatenate(parts) for parts in zip(*writers.values(), strict=True))
    return torch.from_numpy(x), torch.from_numpy(y), torch.arange(len(sizes)).repeat_interleave(sizes)


def _leaf(folder: Path) -> Writers:
    """Every writer in a folder of LEAF's JSON files."""
    found: dict[str, list[Examples]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_bytes())
            users = dict(zip(content["users"], content["num_samples"], strict=True))
            read = {writer: _examples(content["user_data"][writer], size) for writer, size in users.items() if size}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not a whole FEMNIST file of LEAF: {type(error).__name__} {error}") from error
        for writer, examples in read.items():
            found.setdefault(writer, []).append(examples)
    return {w: (np.concatenate([x for x, _ in all]), np.concatenate([y for _, y in all])) for w, all in found.items()}


def _examples(data: Mapping[str, Any], size: int) -> Examples:
    x, y = np.asarray(data["x"], np.float32), np.asarray(data["y"])
    if x.shape != (size, _SIDE**2) or y.shape != (size,):
        raise ValueError(f"x has the shape {list(x.shape)} and y {list(y.shape)} for {size} images of 784 pixels")
    if not (x.min() >= 0 and x.max() <= 1):
        raise ValueError("x has pixels outside 0..1")
    if y.dtype.kind != "i" or y.min() < 0 or y.max() >= len(CHARACTERS):
        raise ValueError(f"y has labels outside 0..{len(CHARACTERS) - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, 1, _SIDE, _SIDE), y.astype(np.int64)


def _rows(root: Path, columns: Collection[str]) -> Iterator[tuple[Path, Any]]:
    """Some columns of all parquet files, a batch at a time."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("femnist: reading parquet files needs pyarrow; pip install pyarrow") from None
    for file in sorted(root.glob("*.parquet")):
        try:
            opened = parquet.ParquetFile(file)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file} is not a whole parquet file: {error}") from error
        with opened:
            absent = set(_COLUMNS) - set(opened.schema_arrow.names)
            if absent:
                raise ValueError(f"{file} has no column {', '.join(sorted(absent))}; needed: {', '.join(_COLUMNS)}")
            for batch in opened.iter_batches(columns=list(columns)):
                yield file, batch


def _pixels(file: Path, image: Any) -> NDArray[np.uint8]:
    """One stored PNG as [1, 28, 28]."""
    try:
        with Image.open(io.BytesIO(image["bytes"] if isinstance(image, dict) else image), formats=["PNG"]) as opened:
            pixels = np.asarray(opened.convert("L"))
    except Exception as error:
        raise ValueError(f"{file} has an unreadable image: {error}") from error
    if pixels.shape != (_SIDE, _SIDE):
        raise ValueError(f"{file} has an image of {pixels.shape[1]}x{pixels.shape[0]}; allowed: 28x28")
    return pixels[None]


def _label(file: Path, character: Any) -> int:
    """A class number, or the character itself."""
    label = CHARACTERS.find(character) if isinstance(character, str) and len(character) == 1 else character
    if not isinstance(label, int) or not 0 <= label < len(CHARACTERS):
        raise ValueError(
            f"{file} has character {character!r}; allowed: 0..{len(CHARACTERS) - 1} or one of {CHARACTERS}"
        )
    return label
