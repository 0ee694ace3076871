"""The file formats of FEMNIST: LEAF's JSON, and parquet as on Hugging Face.

Both are read twice: once to count every writer's examples, once for the examples of the chosen writers only, as
decoding all 800,000 takes minutes.
"""

import importlib
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.core.files import read_text, reason, regular

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images [n, 1, 28, 28] and labels [n]
Writers = dict[str, Examples]

_SIDE = 28
_COLUMNS = ("image", "writer_id", "character")


def leaf_sizes(folder: Path) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for file in sorted(folder.glob("*.json")):
        with _opened(file) as text:
            sizes.update(_sizes(text))
    return sizes


def leaf_examples(folder: Path, chosen: Collection[str]) -> Writers:
    """The examples of some writers. user_data has them in the order of users, so a file is searched once."""
    found: dict[str, list[Examples]] = {writer: [] for writer in chosen}
    for file in sorted(folder.glob("*.json")):
        with _opened(file) as text:
            begin = at = text.find('"user_data"')
            if begin < 0:
                raise ValueError("it has no 'user_data'")
            for writer, size in _sizes(text).items():
                if writer in found and size:
                    data, at = _value(text, writer, begin, at)
                    found[writer].append(_examples(data, size))
    return {w: (np.concatenate([x for x, _ in all]), np.concatenate([y for _, y in all])) for w, all in found.items()}


def parquet_sizes(folder: Path) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for _, rows in _rows(folder, ("writer_id",)):
        sizes.update(str(writer) for writer in rows["writer_id"].to_pylist())
    return sizes


def parquet_examples(folder: Path, chosen: Collection[str]) -> Writers:
    found: dict[str, list[tuple[NDArray[np.uint8], int]]] = {writer: [] for writer in chosen}
    for file, rows in _rows(folder, _COLUMNS):
        mine = [i for i, writer in enumerate(rows["writer_id"].to_pylist()) if str(writer) in found]
        for row in rows.take(mine).to_pylist() if mine else []:
            found[str(row["writer_id"])].append((_pixels(file, row["image"]), _label(file, row["character"])))
    return {w: (np.stack([x for x, _ in all]), np.array([y for _, y in all])) for w, all in found.items()}


@contextmanager
def _opened(file: Path) -> Iterator[str]:
    """The text of one of LEAF's files; errors inside name the file."""
    text = read_text(file)
    try:
        yield text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not a complete LEAF file of FEMNIST: {reason(error)}") from error


def _sizes(text: str) -> dict[str, int]:
    """Writers and how many examples each has."""
    (users, _), (sizes, _) = _value(text, "users"), _value(text, "num_samples")
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise ValueError("users is not a list of strings")
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("num_samples is not a list of integers")
    if len(users) != len(sizes):
        raise ValueError(f"it has {len(users)} users with {len(sizes)} num_samples")
    return dict(zip(users, sizes, strict=True))


def _value(text: str, key: str, begin: int = 0, near: int = 0) -> tuple[Any, int]:
    """What follows the first `"key":` after `near`, or else after `begin`, and its end; the rest is not parsed."""
    pattern = re.compile(re.escape(json.dumps(key)) + r"\s*:\s*")
    found = pattern.search(text, near) or pattern.search(text, begin)
    if found is None:
        raise ValueError(f"it has no {key!r}")
    return json.JSONDecoder().raw_decode(text, found.end())


def _examples(data: Any, size: int) -> Examples:
    if not isinstance(data, dict) or not {"x", "y"} <= data.keys():
        raise ValueError("a writer's user_data has no x and y")
    try:
        x, y = np.asarray(data["x"], np.float32), np.asarray(data["y"])
    except (ValueError, TypeError, OverflowError):
        raise ValueError("x and y are not numbers of the same length") from None
    if x.shape != (size, _SIDE**2) or y.shape != (size,):
        raise ValueError(f"x has the shape {list(x.shape)} and y {list(y.shape)} for {size} images of 784 pixels")
    if not (x.min() >= 0 and x.max() <= 1):
        raise ValueError("x has pixels outside 0..1")
    if y.dtype.kind != "i" or y.min() < 0 or y.max() >= len(CHARACTERS):
        raise ValueError(f"y has labels outside 0..{len(CHARACTERS) - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, 1, _SIDE, _SIDE), y.astype(np.int64)


def _rows(folder: Path, columns: Collection[str]) -> Iterator[tuple[Path, Any]]:
    """Some columns of all parquet files, a batch at a time."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError("femnist: reading parquet files needs pyarrow; pip install pyarrow") from None
    for file in sorted(folder.glob("*.parquet")):
        absent: set[str] = set()
        regular(file)
        try:
            with parquet.ParquetFile(file) as opened:
                absent = set(_COLUMNS) - set(opened.schema_arrow.names)
                for batch in [] if absent else opened.iter_batches(columns=list(columns)):
                    yield file, batch
        except Exception as error:
            raise ValueError(f"{file} is not a complete parquet file") from error
        if absent:
            raise ValueError(f"{file} has no column {', '.join(sorted(absent))}; needed: {', '.join(_COLUMNS)}")


def _pixels(file: Path, image: Any) -> NDArray[np.uint8]:
    """One stored PNG as [1, 28, 28]."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image["bytes"] if isinstance(image, dict) else image), formats=["PNG"]) as opened:
            pixels = np.asarray(opened.convert("L"))
    except Exception as error:
        raise ValueError(f"{file} has an unreadable image: {reason(error)}") from error
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
