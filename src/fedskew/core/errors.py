"""Failures inside a round, explained so that users can find the cause."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from fedskew.core.federation import Cohort

if TYPE_CHECKING:
    from fedskew.core.round import Recipe


@contextmanager
def locating_errors(recipe: "Recipe", round: int, cohorts: Sequence[Cohort]) -> Iterator[None]:
    """A failure inside names its round and clients, and what the user's own part may not have expected."""
    try:
        yield
    except Exception as error:
        clients = [str(client) for cohort in cohorts for client in cohort.clients]
        more = ", ..." if len(clients) > 8 else ""
        where = f"round {round}, clients {', '.join(clients[:8])}{more}"
        hint = "" if isinstance(error, torch.OutOfMemoryError) else _of_ones_own(recipe)
        raise RuntimeError(f"{where}: {str(error).rstrip('.')}{hint}") from error


def own_parts(recipe: "Recipe") -> list[str]:
    """Which of a recipe's parts, loss and model, are not from this package."""
    losses = [getattr(loss, "function", loss) for loss in (recipe.algorithm.loss, *recipe.algorithm.terms)]
    parts = [("loss", loss) for loss in losses] + [("model", recipe.model.module)]
    own = [name for name, part in parts if not getattr(part, "__module__", "").startswith("fedskew.")]
    return list(dict.fromkeys(own))


def _of_ones_own(recipe: "Recipe") -> str:
    """How the engine calls the user's own parts, and what to do if a part does not support that."""
    own = own_parts(recipe)
    if not own:
        return ""
    return (
        f"; this run has its own {' and '.join(own)}: clients are stacked in front of the batch axis (logits "
        "[..., B, C], labels [..., B], counts [..., C]); engine=serial takes one client at a time"
    )
