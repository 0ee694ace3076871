"""Image files in class folders: listed, decoded once in parallel, then read from a memory-mapped cache."""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from fedskew.core.dataset import Dataset
from fedskew.data.image_cache import ImageCache, Notes, Pixels

Progress = Callable[[int, int], None]  # images done, images in all

_DECODING = 1  # raise this when the same file gives different pixels, so that old caches are not used
_BLOCK = 64
_LARGEST_SIDE = 10_000


def images_in(folder: Path) -> list[Path]:
    """The image files of one class, by name: those in its folder, or in `images` below it as in Tiny-ImageNet."""
    from fedskew.data.pictures import extensions  # which imports Pillow

    place = folder / "images" if (folder / "images").is_dir() else folder
    known = extensions()
    names = [n for n in os.listdir(place) if os.path.splitext(n)[1].lower() in known and not n.startswith(".")]
    if not names:
        raise ValueError(f"the class folder {place} has no image; remove it or put images into it")
    return [place / name for name in sorted(names)]


def image_dataset(
    name: str,
    root: Path,
    train: Sequence[Sequence[Path]],
    test: Sequence[Sequence[Path]],
    class_names: Sequence[str],
    size: int | None,
    progress: Progress | None = None,
) -> Dataset:
    """A data set from the files of each class; without a size all images must have the same size."""
    if size is not None and not 1 <= size <= _LARGEST_SIDE:
        raise ValueError(f"{name}: size is {size}; allowed: 1 to {_LARGEST_SIDE:,}")
    files = [path for part in (train, test) for members in part for path in members]
    cut = sum(len(members) for members in train)
    pixels, notes = _load(root, files, cut, size, progress)
    parts = (pixels[:cut], _labels(train)), (pixels[cut:], _labels(test))
    about = {"mean": tuple(notes["mean"]), "std": tuple(notes["std"]), "class_names": tuple(class_names)}
    return Dataset.of(name, *parts, len(class_names), **about)


def channel_statistics(images: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of [n, C, ...], from exact integer sums; 1 where all is constant."""
    channels, count = images.shape[1], images.size // images.shape[1]
    total, squares = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    for start in range(0, len(images), 1024):
        block = images[start : start + 1024].reshape(-1, channels, images[0, 0].size)
        total += block.sum((0, 2), dtype=np.int64)
        squares += np.square(block, dtype=np.uint16).sum((0, 2), dtype=np.int64)
    sums = list(zip(total.tolist(), squares.tolist(), strict=True))
    deviations = (math.sqrt(count * square - first**2) / count for first, square in sums)
    return tuple(first / count for first, _ in sums), tuple(std or 1.0 for std in deviations)


def _load(
    root: Path, files: Sequence[Path], cut: int, size: int | None, progress: Progress | None
) -> tuple[Pixels, Notes]:
    """All images [n, 3, H, W], from the cache if it matches these files, and the statistics of the first `cut`."""
    kept = ImageCache.of(root, files, _DECODING, size)
    found = kept.read()
    if found is not None:
        return found

    def describe(images: Pixels) -> Notes:
        return dict(zip(("mean", "std"), channel_statistics(images[:cut]), strict=True))

    height, width = (size, size) if size is not None else _pixels(files[0], None).shape[1:]
    try:
        blocks = _decoded(files, (height, width), size, progress)
        return kept.write(blocks, (len(files), 3, height, width), describe)
    except OSError as error:
        warnings.warn(
            f"decoded images are not cached, {kept.index.parent} cannot be written ({error.strerror or error}): they "
            "will be decoded again every time; set FEDSKEW_CACHE to another folder",
            stacklevel=4,
        )
    images = np.concatenate(list(_decoded(files, (height, width), size, progress)))
    return images, describe(images)


def _decoded(
    files: Sequence[Path], shape: tuple[int, int], size: int | None, progress: Progress | None
) -> Iterator[Pixels]:
    """Images in order, a block at a time; if one reader thread fails, the others stop."""

    def block(start: int) -> Pixels:
        return np.stack([_checked(path, files[0], shape, size) for path in files[start : start + _BLOCK]])

    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        done = 0
        for images in pool.map(block, range(0, len(files), _BLOCK)):
            yield images
            done += len(images)
            if progress is not None:
                progress(done, len(files))
    finally:
        pool.shutdown(cancel_futures=True)


def _checked(path: Path, first: Path, shape: tuple[int, int], size: int | None) -> Pixels:
    pixels = _pixels(path, size)
    if pixels.shape[1:] != shape:
        here, there = (f"{width}x{height}" for height, width in (pixels.shape[1:], shape))
        raise ValueError(f"images have different sizes ({path} {here}, {first} {there}); give one: folder:PATH,size=64")
    return pixels


def _pixels(path: Path, size: int | None) -> Pixels:
    from fedskew.data.pictures import pixels

    return pixels(path, size)


def _labels(classes: Sequence[Sequence[Path]]) -> torch.Tensor:
    return torch.arange(len(classes)).repeat_interleave(torch.tensor([len(members) for members in classes]))
