"""Kernels are launched from here, so that those of a whole step can be compiled in parallel before its first run."""

import os
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver

_MOST_THREADS = 8
_started: dict[Hashable, Future[None]] | None = None
_pool: ThreadPoolExecutor | None = None


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **sizes: Any) -> None:
    """Run a Triton kernel; inside `compiling` only start its compilation."""
    if _started is None or _pool is None:
        kernel[grid](*given, **sizes)
        return
    key = kernel, tuple(_kind(value) for value in given), tuple(sizes.items())
    if key not in _started:
        device = next(value.device for value in given if isinstance(value, Tensor))
        _started[key] = _pool.submit(_compile, kernel, grid, device, given, sizes)


@contextmanager
def compiling() -> Iterator[None]:
    """Inside, launched kernels do not run: they are compiled, in parallel, and all are ready at the end."""
    global _started, _pool
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    if torch.cuda.is_available():
        driver.active.get_current_target()  # threads must not be the first to load the driver
    with ThreadPoolExecutor(threads) as _pool:
        _started = {}
        try:
            yield
        finally:
            _started = _pool = None


def _compile(kernel: Any, grid: tuple[int, ...], device: torch.device, given: tuple[Any, ...], sizes: Any) -> None:
    with torch.cuda.device(device):
        kernel.warmup(*given, grid=grid, **sizes)


def _kind(value: Any) -> Hashable:
    """What the compiler looks at: types, and whether an integer is 1 or a multiple of 16."""
    if isinstance(value, Tensor):
        return value.dtype
    return (value == 1, value % 16 == 0) if isinstance(value, int) else float
