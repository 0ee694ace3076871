"""Getting the official files: download, check, extract; and saying what is there.

A download goes to `<file>.part`, and goes on there after an interruption; it takes its name when its checksum is the
official one. An archive is extracted into a hidden folder, which takes its name when it is whole. One process at a time
fetches a data set; another waits and finds it done.
"""

import gzip
import os
import posixpath
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedskew.data.places import data_root
from fedskew.spec import unknown

Progress = Callable[[int, int], None]

_ATTEMPTS, _TIMEOUT, _CHUNK = 3, (10.0, 60.0), 1 << 20


class FetchError(Exception):
    """Something could not be fetched. The message says why and what to do."""


@dataclass(frozen=True)
class Source:
    """An official file. An archive has the folder it holds, the sha256 of the files there, and their bytes together;
    `others` are further forms of the same data that the loader reads."""

    url: str
    bytes: int
    sha256: str
    folder: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    unpacked: int = 0
    others: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


# Each sha256 is listed alike by several public loaders (torchvision, MLDatasets.jl, torch-rb), beside the same lengths.
SOURCES: dict[str, tuple[Source, ...]] = {
    "cifar10": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar-10-batches-bin",
            {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
            184_380_000,
            ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
        ),
    ),
    "cifar100": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "cifar-100-binary",
            {
                "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            },
            184_440_000,
            ("cifar-100-python", "cifar-100-python.tar.gz"),
        ),
    ),
    "svhn": (
        Source(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        Source(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    "svhn-extra": (
        Source(
            "http://ufldl.stanford.edu/housenumbers/extra_32x32.mat",
            1_329_278_602,
            "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
        ),
    ),
}

MANUAL = {
    "femnist": (
        "https://huggingface.co/datasets/flwrlabs/femnist",
        "put its parquet files into {folder}, or the folders train/ and test/ that LEAF writes "
        "(https://github.com/TalwalkarLab/leaf, in data/femnist: ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample)",
    ),
    "imagenet12": (
        "https://www.image-net.org/download-images",
        "register there, and put train/<wnid>/*.JPEG and val/<wnid>/*.JPEG of the classes you want into {folder}",
    ),
}


@dataclass(frozen=True)
class Status:
    """What is known of a file or folder. `state` is present, partial or missing, or after a check good,
    other checksum (a file rebuilt, cut short or changed) or not checked (no official checksum is known)."""

    name: str
    path: Path
    source: str
    bytes: int
    state: str

    @property
    def present(self) -> bool:
        return self.state not in ("missing", "partial")


def fetch(
    name: str, data_dir: str | None = None, mirror: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Get a data set's files, those that are not there yet, and say where they are.

    `mirror` is an address below which the files have their official names. `progress` is told the bytes of all the
    files that are here, and how many there will be.
    """
    root = data_root(data_dir)
    sources = _sources(name, root)
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        raise ValueError(f"mirror is {mirror!r}; allowed: an http:// or https:// address below which {sources[0].file} is")
    total, before, paths = sum(source.bytes for source in sources), 0, []
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f".{name}.lock"):
            for source in sources:
                report = partial(_report, progress, before, total)
                paths.append(_fetch(name, source, root, mirror, report))
                before += source.bytes
                report(0, source.bytes)
    except OSError as error:
        raise FetchError(f"cannot write to {root.resolve()}: {error.strerror or error}") from error
    return paths
