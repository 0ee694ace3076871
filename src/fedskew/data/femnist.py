"""FEMNIST: handwritten digits and letters, 62 classes (0-9, A-Z, a-z), every writer a client (Caldas et al., 2018).

Read from `femnist/` in the data folder, in the first of these forms that exists:

    train/*.json and test/*.json    LEAF's own split of each writer's examples (preprocess.sh -t sample)
    all_data/*.json                 LEAF before its split
    *.parquet                       columns image (a PNG), writer_id, character, as flwrlabs/femnist on Hugging Face

The last two are split here: of each writer's examples, in stored order (files by name), every tenth is for testing.

Writers with at least 10 examples, at least one of them for training and one for testing, are sorted by id (as text).
`clients` of them are drawn without replacement from rng.stream(seed, "writers") and numbered 0, 1, ... in sorted order.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.data.femnist_files import CHARACTERS, Writers, leaf_examples, leaf_sizes, parquet_examples, parquet_sizes
from fedskew.data.images import channel_statistics
from fedskew.data.places import data_root

LEAST = 10
"""Writers with fewer examples do not take part."""

Choose = Callable[[Mapping[str, tuple[int, int]]], list[str]]  # numbers of training and test examples -> the chosen

_PLACES = ("femnist", "femnist/data", ".", "data")


def femnist(seed: int, clients: int, data_dir: str | None = None) -> Dataset:
    """Mean and standard deviation are those of the chosen writers' training images."""
    root, read = _found(data_dir)
    train, test = read(root, lambda sizes: _chosen(sizes, seed, clients))
    parts = list(train.values()), list(test.values())
    made = Dataset.of_clients("femnist", *parts, len(CHARACTERS), class_names=tuple(CHARACTERS))
    mean, std = channel_statistics(made.x_train.numpy())
    return replace(made, mean=mean, std=std)


def femnist_files(data_dir: str | None = None) -> list[Path]:
    root, _ = _found(data_dir)
    return [path for pattern in ("train/*.json", "test/*.json", "*.json", "*.parquet") for path in root.glob(pattern)]


def _found(data_dir: str | None) -> tuple[Path, Callable[[Path, Choose], tuple[Writers, Writers]]]:
    """Where the files are and how to read their form."""
    base = data_root(data_dir)
    for root in (base / place for place in _PLACES):
        if all(any(root.glob(f"{part}/*.json")) for part in ("train", "test")):
            return root, _split
        if any(root.glob("all_data/*.json")):
            return root / "all_data", partial(_whole, leaf_sizes, leaf_examples)
        if any(root.glob("*.parquet")):
            return root, partial(_whole, parquet_sizes, parquet_examples)
    raise FileNotFoundError(
        f"femnist is not in {base.absolute()}: looked for train/*.json with test/*.json, all_data/*.json and *.parquet "
        f"in {', '.join(_PLACES)}; LEAF's preprocess.sh writes the first two, the last is flwrlabs/femnist from "
        "Hugging Face; set --data-dir or FEDSKEW_DATA to look elsewhere"
    )


def _chosen(sizes: Mapping[str, tuple[int, int]], seed: int, clients: int) -> list[str]:
    able = sorted(writer for writer, parts in sizes.items() if sum(parts) >= LEAST and min(parts) > 0)
    if not 1 <= clients <= len(able):
        raise ValueError(
            f"femnist: clients is {clients}; allowed: 1 to {len(able)}, the number of writers with at least {LEAST} "
            "examples, both for training and for testing (LEAF: preprocess.sh -t sample)"
        )
    drawn = rng.stream(seed, "writers").choice(len(able), clients, replace=False)
    return [able[k] for k in sorted(drawn.tolist())]


def _split(root: Path, choose: Choose) -> tuple[Writers, Writers]:
    """LEAF's own training and test examples of the chosen writers."""
    train, test = leaf_sizes(root / "train"), leaf_sizes(root / "test")
    chosen = choose({writer: (train[writer], test[writer]) for writer in train})
    return leaf_examples(root / "train", chosen), leaf_examples(root / "test", chosen)


def _whole(
    sizes: Callable[[Path], Mapping[str, int]],
    examples: Callable[[Path, list[str]], Writers],
    folder: Path,
    choose: Choose,
) -> tuple[Writers, Writers]:
    """The tenth, twentieth, ... example of each chosen writer is for testing."""
    chosen = choose({writer: (size - size // 10, size // 10) for writer, size in sizes(folder).items()})
    train, test = {}, {}
    for writer, (x, y) in examples(folder, chosen).items():
        tenth = np.arange(len(y)) % 10 == 9
        train[writer], test[writer] = (x[~tenth], y[~tenth]), (x[tenth], y[tenth])
    return train, test
