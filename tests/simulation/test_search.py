"""Settings to try: as many as the budget, no two alike, the defaults first."""

import math

import numpy as np
import pytest

from fedskew.knobs import Choices, Knob, Range
from fedskew.simulation.search import SEARCHES, counts_of, generator_for, settings_to_try, spread

TAU, LR = Knob("tau", Range(0.2, 20), 5.0), Knob("lr", Range(1e-3, 1), 0.01)
WORDS = Knob("optimizer", Choices(("sgd", "adam")), "adam")


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("knobs", [[LR], [TAU, LR], [TAU, LR, WORDS]])
@pytest.mark.parametrize("budget", [1, 2, 7, 8, 20])
def test_every_method_gets_all_of_its_budget(search, knobs, budget):
    found = settings_to_try(knobs, budget, search, generator_for(0, "fedlc"))
    assert len(found) == budget
    assert all(values not in found[:i] for i, values in enumerate(found))
    assert found[0] == {knob.name: knob.default for knob in knobs}
    assert found == settings_to_try(knobs, budget, search, generator_for(0, "fedlc"))


@pytest.mark.parametrize("search", SEARCHES)
def test_there_are_no_more_settings_than_there_are(search):
    few = Knob("lr", Choices((0.1, 0.2, 0.3)), 0.01)
    found = settings_to_try([few, WORDS], 50, search, generator_for(0, "fedlc"))
    assert len(found) == 6
    assert found[0] == {"lr": 0.1, "optimizer": "adam"}
    assert settings_to_try([], 8, search, generator_for(0, "fedlc")) == [{}]


@pytest.mark.parametrize(
    ("most", "budget", "counts"),
    [
        ([math.inf], 8, [8]),
        ([math.inf] * 2, 8, [4, 2]),
        ([math.inf] * 3, 8, [2, 2, 2]),
        ([math.inf] * 2, 9, [3, 3]),
        ([2, math.inf], 9, [2, 4]),
        ([2, 2], 100, [2, 2]),
        ([], 8, []),
    ],
)
def test_a_grid_is_as_even_as_can_be(most, budget, counts):
    assert counts_of(most, budget) == counts


def test_draws_are_spread_over_each_range():
    found = spread([Knob("a", Range(0, 100, log=False)), Knob("b", Range(1, 1e10))], 10, np.random.default_rng(0))
    assert sorted(math.floor(values["a"] / 10) for values in found) == pytest.approx(list(range(10)), abs=1)
    assert sorted(math.floor(math.log10(values["b"])) for values in found) == list(range(10))
    assert [values["a"] for values in found] != sorted(values["a"] for values in found)


def test_methods_draw_apart():
    one, other = (settings_to_try([LR], 8, "random", generator_for(0, name)) for name in ("fedavg", "fedlc"))
    assert one != other


@pytest.mark.parametrize(("budget", "search", "words"), [(0, "grid", "budget is 0"), (8, "bayes", "search is 'bayes'")])
def test_a_wrong_search_is_refused(budget, search, words):
    with pytest.raises(ValueError, match=words):
        settings_to_try([LR], budget, search, generator_for(0, "fedavg"))
