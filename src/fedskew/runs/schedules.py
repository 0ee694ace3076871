"""Learning-rate schedules: a factor for each round, counted from 1."""

import math
from collections.abc import Callable

from fedskew.core.checks import check_number

Schedule = Callable[[int], float]


def constant() -> Schedule:
    return lambda round: 1.0


def exponential(gamma: float) -> Schedule:
    """gamma^(round - 1)."""
    check_number("exponential: gamma", gamma, 0, 1, above=True)
    return lambda round: gamma ** (round - 1)


def step(every: int, factor: float = 0.1) -> Schedule:
    """Multiplied by `factor` after every `every` rounds."""
    check_number("step: every", every, 1)
    check_number("step: factor", factor, 0, 1, above=True)
    return lambda round: factor ** ((round - 1) // every)


def cosine(rounds: int, final: float = 0.01) -> Schedule:
    """From 1 down to `final` along half a cosine over the whole run."""
    check_number("cosine: final", final, 0, 1, above=True)

    def factor(round: int) -> float:
        share = (round - 1) / max(1, rounds - 1)
        return final + (1 - final) * (1 + math.cos(math.pi * min(1.0, share))) / 2

    return factor


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "exponential": exponential,
    "step": step,
    "cosine": cosine,
}
NEED_ROUNDS = {"cosine"}
"""Those that depend on how long a run is."""
