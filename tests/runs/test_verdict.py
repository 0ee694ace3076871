"""The one rule of verdicts: a Student interval over seeds, paired."""

from importlib import resources

import pytest
from scipy import stats

from fedskew.paper import TABLES
from fedskew.paper.table import printed
from fedskew.runs.verdict import CLOSE, RULE, Difference, against_baseline, ahead, best, leaders, paired


def by_seed(*values):
    return dict(enumerate(values))


def test_a_difference_by_hand():
    """Differences 1, 2, 3: mean 2, s = 1, t = 4.3027 with two degrees of freedom."""
    found = paired(by_seed(11.0, 22.0, 33.0), by_seed(10.0, 20.0, 30.0))
    assert (found.mean, found.seeds) == (2.0, 3)
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


@pytest.mark.parametrize("n", [3, 5, 10, 40])
def test_the_interval_is_scipys(n):
    gaps = [0.3 + (7 * i) % 5 for i in range(n)]
    found = paired(by_seed(*gaps), by_seed(*[0.0] * n))
    low, high = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([6.0], "not decided"),
        ([60.0], "not decided"),
        ([5.0, 6.0, 7.0], "above"),
        ([-5.0, -6.0, -7.0], "below"),
        ([1.0, 2.0, 3.0], "open"),  # 2 ± 2.48
        ([0.0, 0.0, 0.0], "tied"),
        ([-0.4, 0.0, 0.4], "tied"),  # 0 ± 0.99
        ([-0.9, 0.0, 0.9], "open"),  # 0 ± 2.24
        ([0.6, 1.0, 1.6], "open"),  # 1.07 ± 1.25: it reaches 2.32
        ([2.0, 12.0], "not decided"),
        ([6.0, 6.0], "not decided"),  # equal by chance: their interval would have no width
        ([6.0, 6.0 + 1e-9], "not decided"),
        ([0.0, 0.0], "not decided"),
    ],
)
def test_what_is_decided(gaps, verdict):
    assert paired(by_seed(*gaps), by_seed(*[0.0] * len(gaps))).verdict == verdict


def test_seeds_that_one_side_lacks_are_left_out():
    found = paired({0: 5.0, 1: 6.0, 2: None, 3: 9.0}, {1: 4.0, 0: 1.0, 2: 3.0, 3: None})
    assert (found.mean, found.seeds, found.lost, found.other_lost) == (3.0, 2, 1, 1)
    assert paired({0: 1.0}, {1: 1.0}) is None
    absent = paired({0: 5.0, 1: 6.0, 2: 7.0}, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: None})
    assert (absent.verdict, absent.lost, absent.other_lost) == ("above", 0, 0)
    together = paired({0: 5.0, 1: 6.0, 2: 7.0, 3: None}, {0: 1.0, 1: 1.0, 2: 1.0, 3: None})
    assert (together.verdict, together.lost, together.other_lost) == ("above", 0, 0)
    assert paired({}, {}) is None


@pytest.mark.parametrize(
    ("gap", "lost", "other_lost", "verdict"),
    [
        (5.0, 2, 0, "open"),
        (0.0, 2, 0, "open"),
        (-5.0, 2, 0, "below"),
        (5.0, 0, 1, "above"),
        (0.0, 0, 1, "open"),
        (-5.0, 0, 1, "open"),
        (5.0, 1, 1, "open"),
        (-5.0, 1, 1, "open"),
    ],
)
def test_a_method_that_diverged_alone_is_neither_above_nor_tied(gap, lost, other_lost, verdict):
    mine = by_seed(*[50.0 + gap] * 3, *[None] * lost, *[50.0] * other_lost)
    other = by_seed(*[50.0] * 3, *[50.0] * lost, *[None] * other_lost)
    found = paired(mine, other)
    assert (found.verdict, found.seeds, found.lost, found.other_lost) == (verdict, 3, lost, other_lost)


def test_too_few_finished_seeds_decide_nothing():
    assert paired(by_seed(6.0, 7.0, None), by_seed(1.0, 1.0, 1.0)).verdict == "not decided"


def test_the_words_say_how_many_seeds_were_lost():
    lost, other = Difference(5.01, 1.0, 3, lost=2), Difference(5.01, 1.0, 3, other_lost=1)
    assert str(lost) == "open, +5.01 [+4.01, +6.01] over 3 seeds (2 more diverged)"
    assert str(other) == "above, +5.01 [+4.01, +6.01] over 3 seeds (the other diverged with 1 more)"
    assert str(Difference(1.3, None, 2, lost=3)) == "not decided: two seeds, +1.30 (3 more diverged)"
    assert "diverged" in RULE


def test_the_words_carry_the_interval_and_the_number_of_seeds():
    assert str(Difference(6.0, 2.48, 3)) == "above, +6.00 [+3.52, +8.48] over 3 seeds"
    assert str(Difference(-0.4, 1.0, 5)) == "tied, -0.40 [-1.40, +0.60] over 5 seeds"
    assert str(Difference(1.0, 1.5, 5)) == "open, +1.00 [-0.50, +2.50] over 5 seeds"
    assert str(Difference(1.3, None, 1)) == "not decided: one seed, +1.30"
    assert str(Difference(1.3, None, 2)) == "not decided: two seeds, +1.30"


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (Difference(-6.0, 2.0, 3), "FedLC is below FedAvg, -6.00 [-8.00, -4.00] over 3 seeds"),
        (Difference(0.5, 1.5, 3), "FedLC is tied with FedAvg, +0.50 [-1.00, +2.00] over 3 seeds"),
        (Difference(1.0, 2.0, 3), "FedLC against FedAvg is open, +1.00 [-1.00, +3.00] over 3 seeds"),
        (Difference(1.0, None, 1), "FedLC against FedAvg is not decided: one seed, +1.00"),
    ],
)
def test_sentences(difference, said):
    assert difference.sentence("FedLC", "FedAvg") == said


def test_what_counts_as_close_is_more_than_any_spread_over_seeds_that_the_paper_prints():
    spreads = [std for table in TABLES for cells in printed(table).values() for _, std in filter(None, cells.values())]
    assert max(spread for spread in spreads if spread is not None) < CLOSE


def test_the_page_states_the_rule_of_the_package():
    assert "<!--RULE-->" in resources.files("fedskew.report.page").joinpath("assets/template.html").read_text()
    assert f"within {CLOSE:g} points of zero" in RULE


def row(method, *each, measure="accuracy_last10", diverged=0):
    """A row of `over_seeds` with one measure."""
    known = [value for value in each if value is not None]
    mean = sum(known) / len(known) if known else None
    return {
        "method": method,
        "seeds": list(range(len(each))),
        "diverged": diverged,
        measure: {"mean": mean, "each": each},
    }


def test_rows_are_compared_in_points():
    plain, other = row("fedavg", 0.5, 0.6), row("fedlc", 0.52, 0.63)
    assert ahead(other, plain).mean == pytest.approx(2.5)
    assert against_baseline([other, plain]) == [ahead(other, plain), None]
    assert against_baseline([other]) == [None]
    lossy = row("fedlc", 0.9, 0.91, 0.92, None, None, diverged=2)
    found, _ = against_baseline([lossy, row("fedavg", *[0.5] * 5)])
    assert (found.verdict, found.lost) == ("open", 2)


def test_the_best_is_above_every_other():
    low, middle, high = row("a", 0.1, 0.11, 0.12), row("b", 0.2, 0.21, 0.22), row("c", 0.4, 0.41, 0.42)
    assert best([low, high, middle], "accuracy_last10") == 1
    assert best([low, high, row("d", 0.39, 0.41, 0.43)], "accuracy_last10") is None
    assert best([high], "accuracy_last10") is None
    assert best([row("a", 0.1), row("b", 0.9)], "accuracy_last10") is None
    assert best([row("a", 0.1, 0.1), row("b", 0.9, 0.9)], "accuracy_last10") is None
    assert best([low, row("c", 0.4, 0.41, 0.42, None, diverged=1)], "accuracy_last10") is None
    assert best([low, high, row("d", None, None, None, diverged=3)], "accuracy_last10") == 1


def test_leaders_are_marked_where_the_top_is_settled():
    low, high = row("a", 0.1, 0.11, 0.12), row("c", 0.40, 0.41, 0.42)
    assert leaders([low, high], "accuracy_last10") == {1: "best"}
    assert leaders([low, high, row("d", 0.401, 0.409, 0.42)], "accuracy_last10") == {1: "tied", 2: "tied"}
    tied, unclear = row("d", 0.401, 0.409, 0.42), row("e", 0.3, 0.5, 0.4)
    assert leaders([low, high, unclear], "accuracy_last10") == {}
    assert leaders([low, high, tied, unclear], "accuracy_last10") == {}
    assert leaders([high, row("e", 0.3, 0.31), tied], "accuracy_last10") == {}  # two seeds decide nothing
    lost = row("f", None, None, None, diverged=3)
    assert leaders([low, high, tied, lost], "accuracy_last10") == {1: "tied", 2: "tied"}
    assert leaders([row("a", 0.1), row("b", 0.9)], "accuracy_last10") == {}
    losses = [row("a", 2.0, 2.1, 2.2, measure="loss"), row("b", 1.9, 2.2, 2.2, measure="loss")]
    assert leaders(losses, "loss") == {}


def test_of_losses_the_lowest_is_best():
    rows = [row("a", 2.0, 2.1, 2.2, measure="loss"), row("b", 1.0, 1.2, 1.3, measure="loss")]
    assert best(rows, "loss") == 1  # -0.93 ± 0.14
    rows[1] = row("b", 1.0, 1.5, 2.1, measure="loss")
    assert best(rows, "loss") is None
    rows = [row("a", 2.0, 2.1, 2.2, None, measure="loss"), row("b", 1.0, 1.2, 1.3, 1.1, measure="loss")]
    assert best(rows, "loss") == 1  # the other one diverged
