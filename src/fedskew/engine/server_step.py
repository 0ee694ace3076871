"""The server's first step with parts of the user's own, taken before round 1 with two clients that moved at random:
whether aggregate, server optimiser and correction give what a round needs."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from fedskew.core import rng, tree
from fedskew.core.checks import made_of
from fedskew.core.own import check_like, is_own, says_of_travel, unchanged
from fedskew.core.round import Recipe, Server, Sums, zero_sums
from fedskew.core.tree import Params
from fedskew.engine.first_step import FailsError, differs, tried, undeclared, unsteady

_SAME = "the same names, shapes and types as"


def check_server_parts(recipe: Recipe, server: Server) -> None:
    """Refuse parts of the user's own that give the server something that no round can use. A part that raises an error
    is left to the first round, which explains it."""
    algorithm = recipe.algorithm
    parts = {name: getattr(algorithm, name) for name in ("aggregate", "server", "correction")}
    if not any(map(is_own, parts.values())):
        return
    with suppress(FailsError), rng.seeded(0, "trial"), torch.no_grad():
        with unchanged(recipe):
            made = _step(recipe, server, recipe.travel)
        said = algorithm.needs_travel or says_of_travel(recipe)
        if not said and differs(made, lambda: _step(recipe, server, _unknown)):
            names = [name for name, part in parts.items() if is_own(part)]
            who = f"on the server the {' or '.join(names)} of this run"
            raise (unsteady if differs(made, lambda: _step(recipe, server, recipe.travel)) else undeclared)(who)


def _unknown(steps: Tensor) -> Tensor:
    return torch.full_like(steps, torch.nan, dtype=torch.float64)


def _step(recipe: Recipe, server: Server, travel: Callable[[Tensor], Tensor]) -> list[Params]:
    """What the server makes of two clients: every part in turn."""
    algorithm = recipe.algorithm
    with rng.seeded(0, "step"):
        kept_by_server = server.params, server.correction, server.optimizer  # which a part may change in place
        params, correction, optimizer = (tree.map(torch.clone, part) for part in kept_by_server)
        sums = replace(tried(zero_sums, recipe, server), delta=_merged(recipe, params, travel))
        sums = replace(sums, travel=travel(torch.ones_like(sums.travel, dtype=torch.int64)))
        moved = _check_optimizer(recipe, sums, optimizer, params)
        kept = tried(algorithm.correction.absorb, correction, sums, 0.5)
        check_like("absorb of this run's correction", kept, server.correction, f"{_SAME} server_state has")
        if added := tried(algorithm.correction.shift, kept):
            check_like("shift of this run's correction", added, params, f"nothing, or {_SAME} the parameters")
        return [sums.delta, *moved, kept, added]


def _merged(recipe: Recipe, params: Params, travel: Callable[[Tensor], Tensor]) -> Params:
    """What the aggregate makes of the deltas of two clients."""
    aggregate, device = recipe.algorithm.aggregate, tree.first(params).device
    weights, travels = torch.tensor([2.0, 1.0], dtype=torch.float64), travel(torch.tensor([1, 2]))
    shares = tried(aggregate.coefficients, weights, travels)
    shape = f"shape {list(shares.shape)}" if isinstance(shares, Tensor) else made_of(shares)
    if not isinstance(shares, Tensor) or shares.shape != (2,):
        raise ValueError(
            f"coefficients of this run's aggregate returned {shape} for two clients; allowed: a tensor with one number "
            "per client"
        )
    _check_finite("coefficients of this run's aggregate", {"": shares})
    deltas = tree.map(lambda leaf: 0.01 * torch.randn_like(torch.stack([leaf, leaf])), params)
    merged: Params = tried(aggregate.merge, deltas, shares.to(device))
    check_like("merge of this run's aggregate", merged, params, f"{_SAME} the delta of one client")
    _check_finite("merge of this run's aggregate", merged)
    return merged


def _check_optimizer(recipe: Recipe, sums: Sums, state: Params, params: Params) -> tuple[Params, Params]:
    what, server = "update of this run's server", recipe.algorithm.server
    moved = tried(server.update, tree.neg(sums.delta), state, params, tried(server.pace, sums))
    if not isinstance(moved, tuple | list) or len(moved) != 2:
        raise ValueError(f"{what} returned {made_of(moved)}; allowed: what to add to the parameters, and a state")
    check_like(f"{what} (what to add)", moved[0], params, f"{_SAME} the parameters")
    check_like(f"{what} (its state)", moved[1])
    _check_finite(what, moved[0])
    return moved[0], moved[1]


def _check_finite(what: str, made: Params) -> None:
    if not tree.finite(made):
        raise ValueError(f"{what} gives nan or infinite numbers for finite deltas; allowed: finite numbers")
