"""Knobs are arguments that the methods have, and every value of a range is one that they take."""

import math
from pathlib import Path

import pytest

from fedskew.algorithms import ALGORITHMS, build_algorithm
from fedskew.core import spec
from fedskew.knobs import RANGES, Choices, Range, around, find_argument, knobs_of, short_without, with_arguments

OWN = """
from fedskew import Algorithm
def mine(gain: float = 0.5, kind: str = 'a') -> Algorithm:
    return Algorithm('mine')
"""


def test_every_range_is_of_an_argument_and_holds_what_the_method_takes():
    for method, ranges in RANGES.items():
        for name, values in ranges.items():
            default = spec.parameters(ALGORITHMS[method])[name].default
            assert default is None or values.low <= default <= values.high, (method, name)
            for value in (values.low, values.high):
                build_algorithm(with_arguments(method, {name: value}))


def test_every_method_with_a_number_of_its_own_has_a_range():
    for method, factory in ALGORITHMS.items():
        numbers = [p.name for p in spec.parameters(factory).values() if isinstance(p.default, float)]
        assert not numbers or method in RANGES, method


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("default", [0.2, 1.0, 5.0, 20.0])
def test_a_grid_has_the_default_and_rises(count, default):
    found = Range(0.2, 20).values(count, default)
    assert default in found
    assert len(found) == count
    assert found == sorted(set(found))


def test_a_grid_is_even_by_logarithm_or_by_value():
    assert Range(0.1, 1000).values(2, None) == [1.0, 100.0]
    assert Range(0, 1, log=False).values(4, None) == [0.12, 0.38, 0.62, 0.88]
    assert [Range(1, 100).at(share) for share in (0, 0.5, 1)] == [1, 10, 100]


def test_choices_begin_with_the_default():
    assert Choices((1, 2, 3)).values(2, 3) == [3, 1]
    assert Choices((1, 2, 3)).values(2, 7) == [1, 2]
    assert [Choices((1, 2)).at(share) for share in (0, 0.49, 0.5, 1)] == [1, 1, 2, 2]


def test_what_a_spec_sets_is_no_knob():
    assert [knob.name for knob in knobs_of("fedlc+scaffold")] == ["tau"]
    assert knobs_of("fedlc:tau=2+scaffold") == knobs_of("fedlc:2") == knobs_of("fedavg") == []


def test_arguments_of_the_same_name_are_told_apart():
    assert [knob.name for knob in knobs_of("fedrs+feddyn")] == ["fedrs.alpha", "feddyn.alpha"]
    assert [knob.name for knob in knobs_of("fedlc", taken=["tau"])] == ["fedlc.tau"]
    assert with_arguments("fedrs+feddyn", {"feddyn.alpha": 0.2}) == "fedrs:alpha=0.5,mode=binary+feddyn:alpha=0.2"
    with pytest.raises(ValueError, match=r"several methods.*fedrs\.alpha, feddyn\.alpha"):
        find_argument("fedrs+feddyn", "alpha")


def test_an_argument_nobody_has_is_refused():
    with pytest.raises(ValueError, match="fedlc has no argument mu; allowed: tau"):
        with_arguments("fedlc", {"mu": 1})


def test_a_method_of_ones_own_is_searched_around_its_defaults(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    (knob,) = knobs_of(f"{file}:mine+fedavg")
    assert (knob.name, knob.values, knob.default) == ("gain", around(0.5), 0.5)
    assert with_arguments(f"{file}:mine", {"gain": 2}) == f"{file}:mine,gain=2,kind=a"
    assert knobs_of(f"{file}:mine,2") == []
    assert math.isclose(around(0.5).low, 0.05)


def test_a_name_leaves_out_arguments_whose_values_vary(tmp_path: Path):
    (file := tmp_path / "own.py").write_text(OWN)
    assert short_without(f"{file}:mine,gain=2+fedprox:mu=1", {"gain"}) == "mine:kind=a+fedprox:mu=1"
    assert short_without(f"{file}:mine+fedprox:mu=1", {"fedprox.mu", "mine.gain"}) == "mine:kind=a+fedprox"
    assert short_without("fedlc:tau=2", {"mu"}) == "fedlc:tau=2"
