"""The user's own parts of a recipe: which they are, the random numbers that they may draw, and where they fail."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedskew.core import rng
from fedskew.core.federation import Cohort
from fedskew.core.modules import installed

if TYPE_CHECKING:
    from fedskew.core.round import Recipe

_OF_SHAPES = RuntimeError, IndexError, ValueError
"""What tensor operations raise if shapes do not fit."""


def own_parts(recipe: "Recipe") -> list[str]:
    """Which of the parts that a client's update uses are not from this package."""
    algorithm = recipe.algorithm
    losses = algorithm.loss, *algorithm.terms
    parts: list[tuple[str, object]] = [
        *(("loss", part) for loss in losses for part in (loss, getattr(loss, "function", loss))),
        ("model", recipe.model.module),
        ("correction", algorithm.correction),
        *(("ascent", ascend) for ascend in algorithm.ascents),
        ("optimizer", recipe.optimizer),
    ]
    return list(dict.fromkeys(name for name, part in parts if is_own(part)))


def drawing(recipe: "Recipe", seed: int, *path: Any) -> AbstractContextManager[None]:
    """Inside, the parts of a recipe draw the random numbers of this path, and a failure of the user's own code names
    its line. Only dropout and parts of the user's own draw any, so that a recipe without them pays nothing."""
    algorithm = recipe.algorithm
    of_server = algorithm.aggregate, algorithm.server, algorithm.readout
    quiet = recipe.model.quiet and not own_parts(recipe) and not any(is_own(part) for part in of_server)
    return nullcontext() if quiet else _located(seed, *path)


@contextmanager
def _located(seed: int, *path: Any) -> Iterator[None]:
    try:
        with rng.seeded(seed, *path):
            yield
    except Exception as error:
        if own_line(error) is None:
            raise
        raise (ValueError if isinstance(error, ValueError) else RuntimeError)(told(error)) from error


def is_own(part: object) -> bool:
    """Whether a part is not from this package."""
    return not (getattr(part, "__module__", None) or "").startswith("fedskew.")


@contextmanager
def locating_errors(recipe: "Recipe", round: int, cohorts: Sequence[Cohort]) -> Iterator[None]:
    """A failure inside names its round and clients, and what the user's own part may not have expected."""
    try:
        yield
    except Exception as error:
        clients = [str(client) for cohort in cohorts for client in cohort.clients]
        more = ", ..." if len(clients) > 8 else ""
        where = f"round {round}, clients {', '.join(clients[:8])}{more}"
        about_shapes = isinstance(error, _OF_SHAPES) and not isinstance(error, torch.OutOfMemoryError)
        raise RuntimeError(f"{where}: {told(error)}{_of_ones_own(recipe) if about_shapes else ''}") from error


def _of_ones_own(recipe: "Recipe") -> str:
    """How the engine calls the user's own parts, and what to do if a part does not support that."""
    own = own_parts(recipe)
    if not own:
        return ""
    return (
        f"; this run has its own {' and '.join(own)}: clients are stacked on leading axes (logits [..., B, C], labels "
        "[..., B], counts [..., C], a gradient [..., *shape]); engine=serial takes one client at a time"
    )


def told(error: Exception) -> str:
    """What went wrong, and in which line of the user's own code: `mine.py, line 4, in loss: NameError: ...`."""
    line, text = own_line(error), str(error).strip().rstrip(".")
    if line is None and isinstance(error, RuntimeError | ValueError) and text:
        return text
    return ": ".join(part for part in (line, type(error).__name__, text) if part)


def own_line(error: Exception) -> str | None:
    """The last line on the way to an error that is not from an installed package: `mine.py, line 4, in loss`."""
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {number}, in {frame.f_code.co_name}"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not installed(frame.f_globals.get("__name__"))
    ]
    return lines[-1] if lines else None
