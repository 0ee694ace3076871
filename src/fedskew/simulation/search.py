"""Which settings of a method to try: a grid, or draws that are spread over the ranges of its knobs."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, product

import numpy as np

from fedskew.core import rng
from fedskew.core.checks import check_choice, check_number
from fedskew.core.spec import Value
from fedskew.knobs import Knob

SEARCHES = ("random", "grid")
MOST_TRIES = 1000
_PATIENCE = 20
"""Draws for each missing try before we conclude that there are no more settings."""

Values = dict[str, Value]


def settings_to_try(knobs: Sequence[Knob], budget: int, search: str, generator: np.random.Generator) -> list[Values]:
    """As many settings as the budget allows, no two alike, the defaults first; fewer if there are no more."""
    check_choice("search", search, SEARCHES)
    check_number("budget", budget, 1, MOST_TRIES)
    first = {knob.name: knob.values.values(1, knob.default)[0] for knob in knobs}
    planned = grid(knobs, budget) if search == "grid" else spread(knobs, budget - 1, generator)
    more = (spread(knobs, 1, generator)[0] for _ in range(_PATIENCE * budget))
    wanted = int(min(budget, math.prod(knob.values.most for knob in knobs)))
    found = [first]
    for values in chain(planned, more):
        if len(found) < wanted and values not in found:
            found.append(values)
    return found


def grid(knobs: Sequence[Knob], budget: int) -> list[Values]:
    """All combinations of a few values of each knob, at most this many."""
    counts = counts_of([knob.values.most for knob in knobs], budget)
    columns = [knob.values.values(count, knob.default) for knob, count in zip(knobs, counts, strict=True)]
    return [dict(zip((knob.name for knob in knobs), values, strict=True)) for values in product(*columns)]


def counts_of(most: Sequence[float], budget: int) -> list[int]:
    """How many values each knob gets: as evenly as possible, the first knobs more, and no more combinations than
    tries."""
    counts = [1] * len(most)
    while (place := next(_that_grow(counts, most, budget), None)) is not None:
        counts[place] += 1
    return counts


def _that_grow(counts: Sequence[int], most: Sequence[float], budget: int) -> Iterator[int]:
    """Knobs that can have one more value, those with the fewest first."""
    for i in sorted(range(len(counts)), key=lambda i: counts[i]):
        if counts[i] < most[i] and math.prod(counts) // counts[i] * (counts[i] + 1) <= budget:
            yield i


def spread(knobs: Sequence[Knob], count: int, generator: np.random.Generator) -> list[Values]:
    """A Latin hypercube: each knob has one value in each of `count` equal parts of its range, in random order."""
    shares = [(generator.permutation(count) + generator.random(count)) / count for _ in knobs]
    return [{knob.name: knob.values.at(float(shares[k][i])) for k, knob in enumerate(knobs)} for i in range(count)]


def generator_for(seed: int, method: str) -> np.random.Generator:
    """A method's tries do not depend on other methods."""
    return rng.stream(seed, "tune", method)
