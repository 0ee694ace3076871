"""When one method counts as ahead of another: the rule of tables, of the map and of advice."""

from collections.abc import Sequence

POINT = 1.0
"""Points of accuracy that a method must be ahead by, over several seeds."""
ONE_SEED = 2.0
"""The same for a single seed."""

RULE = (
    f"A method is above or below another when it differs by more than {POINT:g} point over several seeds, "
    f"{ONE_SEED:g} with a single one, both in the mean of the last ten rounds and in the last round."
)


def enough(seeds: int) -> float:
    return POINT if seeds > 1 else ONE_SEED


def verdict(gains: Sequence[float], seeds: int) -> str:
    """How something stands to something that it is so many points ahead of, by every measure."""
    if min(gains) > enough(seeds):
        return "above"
    return "below" if max(gains) < -enough(seeds) else "not clearly apart from"
