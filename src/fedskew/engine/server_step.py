"""The server's first step with parts of the user's own, taken before round 1 with two clients that moved at random:
whether aggregate, server optimiser and correction give what a round needs."""

from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from fedskew.core import rng, tree
from fedskew.core.checks import made_of
from fedskew.core.own import is_own
from fedskew.core.round import Recipe, Server, Sums, zero_sums
from fedskew.core.tree import Params
from fedskew.engine.first_step import FailsError, check_like, tried

_SAME = "the same names and shapes as"


def check_server_parts(recipe: Recipe, server: Server) -> None:
    """Refuse parts of the user's own that give the server something that no round can use. A part that raises an error
    is left to the first round, which explains it."""
    algorithm = recipe.algorithm
    if not any(is_own(part) for part in (algorithm.aggregate, algorithm.server, algorithm.correction)):
        return
    with suppress(FailsError), rng.seeded(0, "trial"), torch.no_grad():
        kept_by_server = server.params, server.correction, server.optimizer  # which a part may change in place
        params, correction, optimizer = (tree.map(torch.clone, part) for part in kept_by_server)
        sums = replace(tried(zero_sums, recipe, server), delta=_merged(recipe, params))
        _check_optimizer(recipe, sums, optimizer, params)
        kept = tried(algorithm.correction.absorb, correction, sums, 0.5)
        check_like("absorb of this run's correction", kept, server.correction, f"{_SAME} server_state has")
        if added := tried(algorithm.correction.shift, kept):
            check_like("shift of this run's correction", added, params, f"nothing, or {_SAME} the parameters")


def _merged(recipe: Recipe, params: Params) -> Params:
    """What the aggregate makes of the deltas of two clients."""
    aggregate, device = recipe.algorithm.aggregate, tree.first(params).device
    travel = recipe.travel(torch.tensor([1, 2]))
    shares = tried(aggregate.coefficients, torch.tensor([2.0, 1.0], dtype=torch.float64), travel)
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


def _check_optimizer(recipe: Recipe, sums: Sums, state: Params, params: Params) -> None:
    what, server = "update of this run's server", recipe.algorithm.server
    moved = tried(server.update, tree.neg(sums.delta), state, params, tried(server.pace, sums))
    if not isinstance(moved, tuple | list) or len(moved) != 2:
        raise ValueError(f"{what} returned {made_of(moved)}; allowed: what to add to the parameters, and a state")
    check_like(f"{what} (what to add)", moved[0], params, f"{_SAME} the parameters")
    check_like(f"{what} (its state)", moved[1], None, "a dictionary of tensors")
    _check_finite(what, moved[0])


def _check_finite(what: str, made: Params) -> None:
    if not tree.finite(made):
        raise ValueError(f"{what} gives nan or infinite numbers for finite deltas; allowed: finite numbers")
