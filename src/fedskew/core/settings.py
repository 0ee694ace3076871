"""What an engine must know about a run, and its arithmetic: fp32, tf32, bf16 (with fp32 weights) or fp64."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedskew.core.federation import Ints

if TYPE_CHECKING:
    from fedskew.core.round import Recipe
    from fedskew.data.augment import Augment


def dtype_of(precision: str) -> torch.dtype:
    """The type that parameters are kept in."""
    return torch.float64 if precision == "fp64" else torch.float32


@dataclass(frozen=True)
class Settings:
    epochs: int
    batch_size: int
    precision: str = "fp32"
    augment: "Augment | None" = None

    def steps(self, sizes: Ints) -> Ints:
        """How many steps clients of these sizes take in a round."""
        return np.asarray(self.epochs * -(-sizes // self.batch_size))

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.precision)


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Matrix products in the run's precision inside, with kernels that repeat to the bit, whatever it was outside."""
    with kernels_of(precision), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        yield


@contextmanager
def kernels_of(precision: str) -> Iterator[None]:
    """The settings that belong to the process; the others belong to a thread."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    cuda.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic = True
    try:
        yield
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


_WORTH_SHARING = 1 << 25
"""Multiplications of a step below which one thread is used: a second one saves a little on a quiet machine, and on a
busy one every step waits for it, which costs several times as much."""


def threads_for(recipe: "Recipe", settings: Settings, clients: int) -> AbstractContextManager[None]:
    """Use one thread inside if the steps of this many clients together are small; else leave the number of threads."""
    model = recipe.model
    large = model.convolutional or model.size * settings.batch_size * clients > _WORTH_SHARING
    return nullcontext() if large else one_thread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
