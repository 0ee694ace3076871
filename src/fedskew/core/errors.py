"""Failures inside a round, explained so that users can find the cause."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from fedskew.core.federation import Cohort
from fedskew.core.own import own_parts
from fedskew.core.traces import told

if TYPE_CHECKING:
    from fedskew.core.round import Recipe

_OF_SHAPES = RuntimeError, IndexError, ValueError
"""What tensor operations raise if shapes do not fit."""


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
