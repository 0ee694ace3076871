"""How often theorem 1's sign statement holds: over rows of `deviation.pairs`."""

import math
from collections.abc import Sequence
from typing import Any

FAR = 10.0
"""n_j / n_r counts as far above D_jr if it is at least ten times D_jr."""


def above(row: dict[str, Any], factor: float = 1.0, bound: str = "bound") -> bool:
    """n_j / n_r > factor D_jr > 0."""
    ratio = math.inf if row["ratio"] is None else row["ratio"]
    return bool(stated(row, bound) and ratio > factor * row[bound])


def stated(row: dict[str, Any], bound: str = "bound") -> bool:
    """Whether the theorem applies to the pair: D_jr is known and positive."""
    return row[bound] is not None and row[bound] > 0


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares of pairs above the bound and of signs as the theorem states them, separately from pairs below it."""
    known = [row for row in rows if stated(row)]
    high, far = ([row for row in known if above(row, factor)] for factor in (1.0, FAR))
    low = [row for row in known if not above(row)]
    printed = [row for row in rows if stated(row, "printed")]
    return {
        "pairs": len(rows),
        "stated": len(known),
        "above": _share(high, known),
        "far_above": _share(far, known),
        "printed_above": _share([row for row in printed if above(row, bound="printed")], printed),
        "kinds": {kind: _of_kind(known, kind) for kind in ("minority", "missing")},
        "signs": {"above": _signs(high), "far_above": _signs(far), "below": _signs(low)},
    }


def _of_kind(known: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    of_kind = [row for row in known if row["kind"] == kind]
    return {"stated": len(of_kind), "above": _share([row for row in of_kind if above(row)], of_kind)}


def _signs(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares with Delta w_r . h^(r) < 0, with Delta w_j . h^(r) > 0, and with both: of the update, and of one step."""
    return {"pairs": len(rows), "update": _held(rows, "own", "other"), "step": _held(rows, "step_own", "step_other")}


def _held(rows: Sequence[dict[str, Any]], own: str, other: str) -> dict[str, float | None]:
    falls, rises = ([row for row in rows if row[own] < 0], [row for row in rows if row[other] > 0])
    both = [row for row in falls if row[other] > 0]
    return {"own": _share(falls, rows), "other": _share(rises, rows), "both": _share(both, rows)}


def _share(some: Sequence[dict[str, Any]], of: Sequence[dict[str, Any]]) -> float | None:
    return len(some) / len(of) if of else None
