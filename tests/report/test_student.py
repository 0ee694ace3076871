"""The interval of a paired difference."""

import pytest
from scipy import stats

from fedskew.report.student import paired, t_quantile, t_share


@pytest.mark.parametrize(("freedom", "printed"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_the_quantile_is_that_of_printed_tables(freedom, printed):
    assert t_quantile(0.95, freedom) == pytest.approx(printed, abs=5e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 49, 200])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_quantile_is_that_of_scipy(freedom, level):
    assert t_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-9)


def test_the_share_between_minus_one_and_one_of_a_cauchy_variable():
    assert t_share(1.0, 1) == pytest.approx(0.5)


def test_a_difference_by_hand():
    """Differences 1, 2, 3: mean 2, s = 1, half = 4.3027 / sqrt(3)."""
    interval = paired([1.0, 2.0, 3.0])
    assert interval.mean == 2
    assert interval.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert not interval.apart
    assert paired([2.0, 2.1, 1.9]).apart


def test_one_pair_has_no_interval_and_no_pair_is_nothing():
    assert paired([0.5]).half is None
    assert not paired([0.5]).apart
    assert paired([]) is None


@pytest.mark.parametrize(("level", "freedom"), [(0.0, 3), (1.0, 3), (0.95, 0)])
def test_what_has_no_quantile(level, freedom):
    with pytest.raises(ValueError, match="allowed"):
        t_quantile(level, freedom)
