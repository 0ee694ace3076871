"""Failures inside a round, told so that a user finds them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from fedskew.core.federation import Cohort

if TYPE_CHECKING:
    from fedskew.core.round import Recipe


@contextmanager
def locating_errors(recipe: "Recipe", round: int, cohorts: Sequence[Cohort]) -> Iterator[None]:
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
