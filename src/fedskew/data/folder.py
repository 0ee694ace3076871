"""The user's own images in class folders: `PATH/train/<class>/*` and `PATH/test/<class>/*` (or `val`).

Classes are numbered by the sorted names of the folders in `train`; a class may be absent from the test images. Any
format that Pillow reads will do; `images.py` says how a file becomes pixels. Names that begin with a dot are ignored.
"""

import hashlib
from pathlib import Path

from fedskew.core.dataset import Dataset
from fedskew.core.files import regular, sha256_of
from fedskew.data.images import Progress, image_dataset, images_in
from fedskew.data.places import user_path

_LAYOUT = "images belong in PATH/train/<class>/ and PATH/test/<class>/ (or val)"


def folder(path: str, size: int | None = None, progress: Progress | None = None) -> Dataset:
    """Images of size x size; without a size, all must have the same size, which need not be square."""
    root, train, test = _listed(path)
    names = list(train)
    tested = [test.get(name, []) for name in names]
    return image_dataset(f"folder:{path}", root, list(train.values()), tested, names, size, progress)


def fingerprint(path: str) -> str:
    """The sha256 of the sorted list of image files with the sha256 of each one's bytes; every file is read.

    It depends only on names and contents, not on times, so a copy on another machine has the same hash.
    """
    root, train, test = _listed(path)
    whole = hashlib.sha256()
    for file in sorted(file for part in (train, test) for members in part.values() for file in members):
        digest = sha256_of(regular(file))
        whole.update(f"{digest} {file.relative_to(root).as_posix()}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _listed(path: str) -> tuple[Path, dict[str, list[Path]], dict[str, list[Path]]]:
    """The root and the files of each class, for training and for testing."""
    root = user_path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"folder: there is no folder {root.absolute()}; {_LAYOUT}")
    train, test = _classes(root, "train"), _classes(root, "test", "val")
    if len(train) < 2:
        raise ValueError(f"folder: {root / 'train'} has {len(train)} class folder(s); allowed: 2 or more, {_LAYOUT}")
    for name, members in test.items():
        if name not in train:
            raise ValueError(
                f"folder: {members[0].parent} is a class without training images; there is no train/{name}"
            )
    if not test:
        raise ValueError(f"folder: {root} has no class folder with test images; {_LAYOUT}")
    return root, train, test


def _classes(root: Path, *names: str) -> dict[str, list[Path]]:
    """Class folders of the first of several parts that exists, by name."""
    part = next((root / name for name in names if (root / name).is_dir()), None)
    if part is None:
        raise FileNotFoundError(f"folder: {root.absolute()} has no folder {' or '.join(names)}; {_LAYOUT}")
    found = sorted(child for child in part.iterdir() if child.is_dir() and not child.name.startswith("."))
    return {child.name: images_in(child) for child in found}
