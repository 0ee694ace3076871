"""Drawn images of ten shapes: a small problem that a convolutional network must learn, with nothing to download.

A dark image of 16x16 shows one shape at a random place, of random size and brightness, under noise, and a short line
that belongs to no shape. Every shape is its own mirror image. The images are always the same: they have their own
random stream, whatever the seed of a run.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedskew.core import rng
from fedskew.core.dataset import Dataset

Values = NDArray[np.float64]
SIDE = 16
NAMES = ("disc", "ring", "square", "frame", "plus", "cross", "level bars", "upright bars", "triangle", "funnel")
_DARK, _BRIGHT, _NOISE, _EDGE = 50.0, 150.0, 0.15, 0.3


def _bar(across: Values, along: Values) -> Values:
    """How far inside a bar around an axis: positive inside."""
    return np.minimum(0.24 - np.abs(across), 0.95 - np.abs(along))


def _triangle(u: Values, v: Values) -> Values:
    """Its tip at v = -0.9, its base at v = 0.8."""
    return np.minimum(0.8 - v, (v + 0.9) * 0.5 - np.abs(u))


_SHAPES: tuple[Callable[[Values, Values], Values], ...] = (
    lambda u, v: 0.85 - np.hypot(u, v),
    lambda u, v: 0.2 - np.abs(np.hypot(u, v) - 0.72),
    lambda u, v: 0.75 - np.maximum(np.abs(u), np.abs(v)),
    lambda u, v: 0.17 - np.abs(np.maximum(np.abs(u), np.abs(v)) - 0.68),
    lambda u, v: np.maximum(_bar(u, v), _bar(v, u)),
    lambda u, v: np.maximum(_bar((u + v) / 2**0.5, (u - v) / 2**0.5), _bar((u - v) / 2**0.5, (u + v) / 2**0.5)),
    lambda u, v: np.maximum(_bar(v - 0.5, u), _bar(v + 0.5, u)),
    lambda u, v: np.maximum(_bar(u - 0.5, v), _bar(u + 0.5, v)),
    _triangle,
    lambda u, v: _triangle(u, -v),
)
"""How far inside a shape the point (u, v) is, in units of its half size: positive inside, v downwards."""


def shapes(train: int = 6000, test: int = 2000) -> Dataset:
    """`train` training and `test` test images, in equal numbers of each class."""
    for name, value in (("train", train), ("test", test)):
        if not (value >= 10 and value % 10 == 0 and value <= 1_000_000):
            raise ValueError(f"shapes: {name} is {value}; allowed: a multiple of 10, from 10 to 1000000")
    first, second = (_drawn(count, rng.stream(0, "shapes", part)) for part, count in enumerate((train, test)))
    mean, std = float(first[0].mean(dtype=np.float64)), float(first[0].std(dtype=np.float64))
    return Dataset.of("shapes", first, second, len(NAMES), mean=(mean,), std=(std,), class_names=NAMES)


def _drawn(count: int, generator: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, 1, 16, 16] and their classes, in random order."""
    labels = generator.permutation(np.arange(count) % len(NAMES))
    size = generator.uniform(3.0, 5.5, count)
    place = [generator.uniform(size, SIDE - 1 - size) for _ in range(2)]
    picture = generator.uniform(0.4, 1.0, (count, 1, 1)) * _painted(labels, size, place)
    picture += _distractor(count, generator)
    picture += generator.normal(0.0, _NOISE, picture.shape)
    return np.clip(_DARK + _BRIGHT * picture, 0, 255).astype(np.uint8)[:, None], labels.astype(np.int64)


def _painted(labels: NDArray[np.int64], size: Values, place: list[Values]) -> Values:
    """Each image's shape as values from 0 to 1, with edges a pixel wide."""
    grid = np.arange(SIDE, dtype=np.float64)
    painted = np.zeros((len(labels), SIDE, SIDE))
    for label, inside in enumerate(_SHAPES):
        mine = np.flatnonzero(labels == label)
        scale = size[mine, None, None]
        u = (grid[None, None, :] - place[0][mine, None, None]) / scale
        v = (grid[None, :, None] - place[1][mine, None, None]) / scale
        painted[mine] = np.clip(inside(u, v) * scale / (2 * _EDGE) + 0.5, 0.0, 1.0)
    return painted


def _distractor(count: int, generator: np.random.Generator) -> Values:
    """A piece of a line, at any angle, in each image."""
    grid = np.arange(SIDE, dtype=np.float64)
    angle, across, down = (generator.uniform(0, high, (count, 1, 1)) for high in (np.pi, SIDE, SIDE))
    length, shade = generator.uniform(1.5, 3.0, (count, 1, 1)), generator.uniform(0.2, 0.8, (count, 1, 1))
    x, y = grid[None, None, :] - across, grid[None, :, None] - down
    along, beside = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return np.asarray(shade * ((np.abs(along) < length) & (np.abs(beside) < 0.7)))
