"""The user's own parts of a recipe: which they are, the random numbers that they may draw, and where they fail."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedskew.core import rng, tree
from fedskew.core.checks import made_of
from fedskew.core.federation import Cohort
from fedskew.core.identity import contents, identity
from fedskew.core.modules import installed
from fedskew.core.tree import Params

if TYPE_CHECKING:
    from fedskew.core.round import Recipe

_TABLE = 10_000
"""What has more values than this is not read."""
_OF_SHAPES = RuntimeError, IndexError, ValueError
"""What tensor operations raise if shapes do not fit."""


def own_parts(recipe: "Recipe") -> list[str]:
    """Which of the parts that a client's update uses are not from this package."""
    return list(dict.fromkeys(name for name, part in _of_clients(recipe) if is_own(part)))


def says_of_travel(recipe: "Recipe") -> bool:
    """Whether a part of the user's own has `needs_travel`: with False it means the number of steps."""
    algorithm = recipe.algorithm
    parts = [part for _, part in _of_clients(recipe)]
    return any(_says(part) for part in (*parts, algorithm.aggregate, algorithm.server) if is_own(part))


def _says(part: object) -> bool:
    kinds = [kind for kind in type(part).__mro__ if not installed(kind.__module__)]
    return any("needs_travel" in vars(kind) for kind in kinds) or "needs_travel" in getattr(part, "__dict__", {})


def _of_clients(recipe: "Recipe") -> list[tuple[str, object]]:
    algorithm = recipe.algorithm
    losses = algorithm.loss, *algorithm.terms
    return [
        *(("loss", part) for loss in losses for part in (loss, getattr(loss, "function", loss))),
        ("model", recipe.model.module),
        ("correction", algorithm.correction),
        *(("ascent", ascend) for ascend in algorithm.ascents),
        ("optimizer", recipe.optimizer),
    ]


@contextmanager
def unchanged(recipe: "Recipe") -> Iterator[None]:
    """Refuse parts of the user's own that change themselves inside. A checkpoint does not hold what they keep, and each
    engine calls them in its own order, so that their numbers would depend on both. A model is known by what it is after
    its first pass, because many keep what they compute once."""
    algorithm = recipe.algorithm
    of_server = ("aggregate", algorithm.aggregate), ("server", algorithm.server)
    own = {
        id(part): (name, part)
        for name, part in (*_of_clients(recipe), *of_server)
        if is_own(part) and name != "model" and part is not recipe.optimizer
    }
    before = {key: contents(part) for key, (_, part) in own.items()}
    yield
    for key, (name, part) in own.items():
        check_unchanged(name, before[key], contents(part))


def check_unchanged(name: str, before: dict[str, str], after: dict[str, str]) -> None:
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        kept = f" ({', '.join(key for key in changed if key)})" if any(changed) else ""
        raise ValueError(
            f"the {name} of this run changes itself when it is called{kept}: engines would give other numbers, and a "
            "run that continues would have lost it; allowed: parts that stay as they are (what is computed once may be "
            "a functools.cached_property); a state belongs in client_state or server_state of a correction"
        )


def kept_by(module: nn.Module) -> dict[str, str]:
    """Digests of what the user's own modules in it keep beside parameters, buffers and other tensors: many note what
    they have computed last. Of large tables, such as a vocabulary, the size."""
    theirs = vars(nn.Module()).keys()
    found: dict[str, str] = {}
    for path, part in module.named_modules():
        known = {} if installed(type(part).__module__) else vars(part)
        for name in known.keys() - theirs:
            key = f"{path}.{name}".lstrip(".")
            with suppress(Exception):  # what cannot be read does not count
                leaves = tree_leaves(known[name])
                if len(leaves) > _TABLE:
                    found[key] = str(len(leaves))
                elif not any(isinstance(leaf, Tensor) for leaf in leaves):
                    found[key] = identity(known[name], name)
    return found


def check_like(what: str, made: Any, like: Params | None = None, allowed: str = "a dictionary of tensors") -> None:
    """Refuse anything but a dictionary of tensors, with the names, shapes and types of others if there are any."""
    if wrong := _problem(made, like):
        raise ValueError(f"{what} returned {wrong}; allowed: {allowed}")


def _problem(made: Any, like: Params | None) -> str | None:
    """How something differs in names and shapes from other tensors, or is no dictionary of tensors."""
    if not isinstance(made, dict):
        return made_of(made)
    for name, leaf in made.items():
        if not isinstance(leaf, Tensor):
            return f"{made_of(leaf)} for {name!r}"
    return None if like is None else tree.unlike(made, like)


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
