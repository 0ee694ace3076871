"""Limits on replies: how many examples a node may claim, and how far its answer may go.

    norm_k <= 30 * usual * max(1, steps_k / median of the other clients' steps)

`usual` is the median norm of the other answers of the round, or the largest median of an earlier round if that is
larger: late in a run most clients may have nothing left to learn, and the few that do still move as far as all did
before. If fewer than three clients answer and there is no earlier median, the other answer's norm or that of the global
model is used. The factor is three times what honest clients need under extreme skew (figures:
docs/federation-reference.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

import torch

from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.flower.messages import BUFFERS, MESSAGE, PARAMS, Answer

MULTIPLE = 30.0
"""How many times farther than usual an answer may go."""
CROWD = 1000
"""How many times the median of the others' examples a node may claim if the server does not know the data."""

Norms = Mapping[str, float]


@dataclass(frozen=True)
class Move:
    """How far a client went in its steps: the norm of each record's change."""

    steps: int
    norms: Norms

    @classmethod
    def of(cls, answer: Answer, server: Server) -> "Move":
        changes = {PARAMS: (answer.params, server.params), BUFFERS: (answer.buffers, server.buffers)}
        norms = {name: _norm(_change(*pair)) for name, pair in changes.items()}
        return cls(answer.steps, norms | {MESSAGE: _norm(answer.message)})


def check_reach(move: Move, others: Sequence[Move], earlier: Norms, server: Server) -> None:
    """A ValueError for an answer that goes farther than the others allow; `earlier` is what `learnt` gave."""
    sizes = {PARAMS: server.params, BUFFERS: server.buffers, MESSAGE: server.correction}
    for name, norm in move.norms.items():
        stand_in = max([_norm(sizes[name]), *(other.norms[name] for other in others)])
        limit = MULTIPLE * (expected_norm(name, move, others, earlier) or stand_in)
        if limit and not norm <= limit:
            raise ValueError(
                f"its {name} moved by {norm:.4g}; max-norm=auto allows {limit:.4g}, judging by the other answers"
            )


def expected_norm(name: str, move: Move, others: Sequence[Move], earlier: Norms) -> float:
    """How far a record usually moves in this many steps; 0 if unknown."""
    norms = [other.norms[name] for other in others]
    usual = max(earlier.get(name, 0.0), median_high(norms) if len(norms) > 1 else 0.0)
    return usual * (max(1.0, move.steps / median_high([other.steps for other in others])) if others else 1.0)


def learnt(earlier: Norms, moves: Sequence[Move]) -> Norms:
    """The largest median of a round so far, by record, after a round with these moves."""
    if not moves:
        return earlier
    medians = {name: median_low([move.norms[name] for move in moves]) for name in moves[0].norms}
    return {name: max(median, earlier.get(name, 0.0)) for name, median in medians.items()}


def most_examples(held: int | None, others: Sequence[int]) -> int | None:
    """How many examples one client can have: all of the data set, or, if the server has none (`held` is None), many
    times what the others claim. None: there is no basis for a limit."""
    if held is not None:
        return held
    return CROWD * int(median_high(others)) if others else None


def _change(after: Params, before: Params) -> Params:
    """By how much real numbers changed, without overflow; counters are left out."""
    moved = {name: leaf.double() - before[name] for name, leaf in after.items() if leaf.is_floating_point()}
    return {name: change.masked_fill(after[name] == before[name], 0) for name, change in moved.items()}


def _norm(leaves: Params) -> float:
    return float(tree.norm(tree.map(torch.Tensor.double, leaves), 0)) if leaves else 0.0
