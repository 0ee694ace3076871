"""Rounds to reach an accuracy and the share of the IID gap closed, on curves made by hand."""

import pytest

from fedskew.runs.measures import Reach, Share, end, first_round, gap_closed, rounds_to_reach
from fedskew.runs.summary import mean_words


def flat(accuracy: float, rounds: int = 20) -> list[tuple[int, float]]:
    return [(r, accuracy) for r in range(1, rounds + 1)]


def test_the_end_is_the_mean_of_the_last_ten_rounds_of_those_evaluated() -> None:
    assert end([(10, 0.1), (20, 0.2), (21, 0.4), (30, 0.6)]) == pytest.approx(0.5)
    assert end([(3, 0.3)]) == 0.3


def test_the_end_of_a_short_run_is_its_last_half() -> None:
    def rising(rounds: int) -> list[tuple[int, float]]:
        return [(r, float(r)) for r in range(1, rounds + 1)]

    assert [end(rising(n)) for n in (1, 2, 3, 8, 18, 19, 20)] == [1, 2, 2.5, 6.5, 14, 14.5, 15.5]
    assert [mean_words([n]) for n in (1, 2, 8, 18, 19)] == [
        "last round", "last round", "mean of the last 4 rounds", "mean of the last 9 rounds",
        "mean of the last ten rounds",
    ]  # fmt: skip
    assert mean_words([8, 40]) == "mean of the last 4 to ten rounds"


def test_a_round_that_was_not_evaluated_is_not_the_first() -> None:
    curve = [(10, 0.3), (20, 0.5), (30, 0.4), (40, 0.6)]
    assert first_round(curve, 0.3) == 10
    assert first_round(curve, 0.31) == 20  # perhaps reached in round 11; nobody looked
    assert first_round(curve, 0.45) == 20  # although round 30 is below again
    assert first_round(curve, 0.7) is None


def test_the_default_target_is_what_fedavg_of_the_same_seed_has_at_its_end() -> None:
    base = {0: flat(0.5), 1: flat(0.8)}
    rising = [(r, r / 20) for r in range(1, 21)]
    assert rounds_to_reach({0: rising, 1: rising}, base) == Reach(16, 2, 2)  # round 10 and round 16: the later one
    assert rounds_to_reach({0: rising}, base) == Reach(10, 1, 1)
    assert rounds_to_reach({0: rising, 1: rising}, 0.25) == Reach(5, 2, 2)


def test_a_level_curve_reaches_its_own_end() -> None:
    """A mean of equal numbers may be rounded up: that of seven times 7/360 is."""
    curves = [flat(right / 360, rounds) for right in range(361) for rounds in range(1, 21)]
    assert any(end(curve) > curve[-1][1] for curve in curves)
    assert all(rounds_to_reach({0: curve}, {0: curve}) == Reach(1, 1, 1) for curve in curves)


def test_ends_that_only_rounding_tells_apart_have_no_gap() -> None:
    level = [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.4)]
    assert end(level) > 0.3
    assert gap_closed({0: flat(0.4)}, {0: flat(0.3)}, {0: level}) is None


def test_never_counts_as_later_than_any_round() -> None:
    curves = {0: flat(0.3), 1: flat(0.6), 2: flat(0.6)}
    assert rounds_to_reach(curves, 0.5) == Reach(1, 2, 3)
    assert rounds_to_reach({0: flat(0.3), 1: flat(0.6)}, 0.5) == Reach(None, 1, 2)
    assert rounds_to_reach(curves, 0.9) == Reach(None, 0, 3)
    assert [str(Reach(40, 3, 3)), str(Reach(40, 2, 3)), str(Reach(None, 0, 3)), str(Reach(None, 1, 3))] == [
        "40", "40 (2 of 3 seeds)", "never", "only 1 of 3 seeds",
    ]  # fmt: skip


def test_without_fedavg_there_is_no_target_and_no_share() -> None:
    assert rounds_to_reach({0: flat(0.5)}, {}) is None
    assert rounds_to_reach({0: flat(0.5)}, {1: flat(0.4)}) is None  # no seed in common
    assert gap_closed({0: flat(0.5)}, {}, {0: flat(0.9)}) is None


def test_the_share_is_a_ratio_of_means_over_the_seeds_that_all_have() -> None:
    base, iid = {0: flat(0.4), 1: flat(0.6)}, {0: flat(0.8), 1: flat(0.8), 2: flat(0.1)}
    found = gap_closed({0: flat(0.5), 1: flat(0.8), 3: flat(0.0)}, base, iid)
    assert found is not None
    assert found == Share(pytest.approx(0.5), pytest.approx(0.3), 2)  # (0.65 - 0.5) / (0.8 - 0.5)
    assert str(found) == "50 %"
    worse = gap_closed({0: flat(0.2)}, base, iid)
    assert worse is not None
    assert worse.share == pytest.approx(-0.5)


def test_without_iid_runs_or_without_a_gap_there_is_no_share() -> None:
    assert gap_closed({0: flat(0.5)}, {0: flat(0.4)}, {}) is None
    assert gap_closed({0: flat(0.5)}, {0: flat(0.4)}, {0: flat(0.4)}) is None
    assert gap_closed({0: flat(0.5)}, {0: flat(0.4)}, {0: flat(0.3)}) is None
