"""Which parts of a recipe are the user's own, the random numbers that these may draw, and the lines where they fail."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from fedskew.core import rng
from fedskew.core.traces import own_line, told

if TYPE_CHECKING:
    from fedskew.core.round import Recipe


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
    return list(dict.fromkeys(name for name, part in parts if _own(part)))


def drawing(recipe: "Recipe", seed: int, *path: Any) -> AbstractContextManager[None]:
    """Inside, the parts of a recipe draw the random numbers of this path, and a failure of the user's own code names
    its line. Only dropout and parts of the user's own draw any, so that a recipe without them pays nothing."""
    algorithm = recipe.algorithm
    of_server = algorithm.aggregate, algorithm.server, algorithm.readout
    quiet = recipe.model.quiet and not own_parts(recipe) and not any(_own(part) for part in of_server)
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


def _own(part: object) -> bool:
    return not (getattr(part, "__module__", None) or "").startswith("fedskew.")
