"""Learning-rate schedules: a factor for each round, counted from 1."""

import math
from dataclasses import dataclass

from fedskew.core.checks import check_number


@dataclass(frozen=True)
class Constant:
    needs_rounds = False

    def __call__(self, round: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential:
    """gamma^(round - 1)."""

    gamma: float
    needs_rounds = False

    def __post_init__(self) -> None:
        check_number("exponential: gamma", self.gamma, 0, 1, above=True)

    def __call__(self, round: int) -> float:
        return float(self.gamma ** (round - 1))


@dataclass(frozen=True)
class Step:
    """Multiplied by `factor` after every `every` rounds."""

    every: int
    factor: float = 0.1
    needs_rounds = False

    def __post_init__(self) -> None:
        check_number("step: every", self.every, 1)
        check_number("step: factor", self.factor, 0, 1, above=True)

    def __call__(self, round: int) -> float:
        return float(self.factor ** ((round - 1) // self.every))


@dataclass(frozen=True)
class Cosine:
    """From 1 down to `final` along half a cosine over the whole run."""

    rounds: int
    final: float = 0.01
    needs_rounds = True

    def __post_init__(self) -> None:
        check_number("cosine: final", self.final, 0, 1, above=True)

    def __call__(self, round: int) -> float:
        share = (round - 1) / max(1, self.rounds - 1)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * min(1.0, share))) / 2


Schedule = Constant | Exponential | Step | Cosine
SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "exponential": Exponential,
    "step": Step,
    "cosine": Cosine,
}
