"""What an engine must know of a run, and its arithmetic: fp32, tf32, bf16 (with fp32 weights) or fp64."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedskew.data.augment import AUGMENTS, Augment
from fedskew.federation import Cohort, Ints

if TYPE_CHECKING:
    from fedskew.experiments.run import Run
    from fedskew.round import Recipe

PRECISIONS = ("fp32", "tf32", "bf16", "fp64")


def dtype_of(precision: str) -> torch.dtype:
    """The type that parameters are kept in."""
    return torch.float64 if precision == "fp64" else torch.float32


@dataclass(frozen=True)
class Settings:
    epochs: int
    batch_size: int
    precision: str = "fp32"
    augment: Augment | None = None

    @classmethod
    def of(cls, run: "Run", shape: Sequence[int]) -> "Settings":
        """Those of a run on examples of this shape."""
        augment = AUGMENTS[run.augment]
        if augment is not None and len(shape) != 3:
            raise ValueError(f"augment is {run.augment!r}, which needs images; examples have shape {tuple(shape)}")
        return cls(run.local_epochs, run.batch_size, run.precision, augment)

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
    """The part of it that belongs to the process; the rest belongs to a thread."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    cuda.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic = True
    try:
        yield
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


@contextmanager
def naming(recipe: "Recipe", round: int, cohorts: Sequence[Cohort]) -> Iterator[None]:
    """A failure inside says in which round and among which clients it happened, and what a part of the user's own
    may not have expected."""
    try:
        yield
    except Exception as error:
        clients = [str(client) for cohort in cohorts for client in cohort.clients]
        more = ", ..." if len(clients) > 8 else ""
        where = f"round {round}, clients {', '.join(clients[:8])}{more}"
        hint = "" if isinstance(error, torch.OutOfMemoryError) else _of_ones_own(recipe)
        raise RuntimeError(f"{where}: {str(error).rstrip('.')}{hint}") from error


def own_parts(recipe: "Recipe") -> list[str]:
    """Which of a recipe's parts, loss and model, are not of this package."""
    losses = [getattr(loss, "function", loss) for loss in (recipe.algorithm.loss, *recipe.algorithm.terms)]
    parts = [("loss", loss) for loss in losses] + [("model", recipe.model.module)]
    own = [name for name, part in parts if not getattr(part, "__module__", "").startswith("fedskew.")]
    return list(dict.fromkeys(own))


def _of_ones_own(recipe: "Recipe") -> str:
    """How parts that are not of this package are called, and the way out for one that is not made for that."""
    own = own_parts(recipe)
    if not own:
        return ""
    return (
        f"; this run has its own {' and '.join(own)}: all clients are taken at once, in front of the batch (logits "
        "[..., B, C], labels [..., B], counts [..., C]); engine=serial takes one client at a time"
    )
