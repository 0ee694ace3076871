"""Named randomness: every random number has a path and depends only on that path.

`stream(seed, "partition")` is a numpy generator; `key(seed, "shuffle", round, clients)` gives one 64-bit key per client
at once, from which `permutations` shuffles a whole cohort in a few array operations. Code that draws from a global
generator runs inside `seeded`, so no result depends on a global seed or on the order of execution.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_SEGMENT_BITS = 20


def _mix(x: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that scatters 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


@lru_cache
def _word(word: str) -> Keys:
    return np.frombuffer(hashlib.blake2b(word.encode(), digest_size=8).digest(), np.uint64)


def _part(part: Any) -> Keys:
    if isinstance(part, str):
        return _word(part)
    return _mix(np.atleast_1d(np.asarray(part)).astype(np.uint64) + _GOLDEN)


def key(seed: int, *path: Any) -> Keys:
    """64-bit keys of a path of words, integers and integer arrays; arrays broadcast, the result is 1-d."""
    state = _part(seed)
    for part in path:
        state = _mix(state * _GOLDEN + _part(part))
    return state


def stream(seed: int, *path: Any) -> np.random.Generator:
    """The numpy generator that belongs to a path."""
    return np.random.Generator(np.random.PCG64(int(key(seed, *path)[0])))


def uniform(keys: Keys) -> NDArray[np.float64]:
    """One number in [0, 1) per key."""
    return np.asarray((_mix(keys + _GOLDEN) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def permutations(keys: Keys, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A random order of range(size) for each key, concatenated.

    Every position draws 44 random bits from its key and a stable sort orders them, so a segment's order does not depend
    on the other segments computed with it.
    """
    if len(keys) >= 1 << _SEGMENT_BITS:
        raise ValueError(f"{len(keys)} permutations at once; allowed: at most {(1 << _SEGMENT_BITS) - 1}")
    segment = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    mixed = (segment << np.uint64(64 - _SEGMENT_BITS)) | (_drawn(keys, sizes) >> np.uint64(_SEGMENT_BITS))
    return np.argsort(mixed, kind="stable") - np.repeat(np.cumsum(sizes) - sizes, sizes)


def draws(keys: Keys, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """`size` non-negative integers for each key, concatenated."""
    return (_drawn(keys, sizes) >> np.uint64(1)).astype(np.int64)


def within(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from 0 up to each size, concatenated."""
    return np.arange(sizes.sum(), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _drawn(keys: Keys, sizes: NDArray[np.int64]) -> Keys:
    """64 bits for each position of each key's segment."""
    return _mix(np.repeat(keys, sizes) + (within(sizes) + 1).astype(np.uint64) * _GOLDEN)


@contextmanager
def seeded(seed: int, *path: Any) -> Iterator[None]:
    """The global generators of torch, NumPy and Python, which module initialisers, dropout and users' parts draw from,
    seeded inside and untouched outside. They belong to the process: one thread at a time."""
    number, numpy, python = int(key(seed, *path)[0]) & (2**63 - 1), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(number)
            np.random.seed(number % 2**32)  # noqa: NPY002
            random.seed(number)
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)


def position() -> tuple[object, ...]:
    """Where the global generators are: the same after code that has drawn nothing from them."""
    _, numpy, *rest = np.random.get_state()  # noqa: NPY002
    devices = [state.tolist() for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_initialized() else []
    return torch.get_rng_state().tolist(), devices, np.asarray(numpy).tolist(), rest, random.getstate()
