"""Numbers in sentences."""

import pytest

from fedskew.advice.findings import advise
from fedskew.advice.kinds import kind_of
from fedskew.advice.text import lines, verdict
from tests.advice.test_findings import IMAGES, dirichlet, near, own, table


@pytest.mark.parametrize(("more", "said"), [(0.2, "0.05."), (0.416, "0.104, which is not near."), (0.6, "0.15, which")])
def test_a_distance_shows_on_which_side_of_the_limit_it_lies(more, said):
    counts = dirichlet(0.1)
    made = table({"fedavg": 60, "fedlc": 64}, 3, {**near(counts), "size_gini": near(counts)["size_gini"] + more})
    (rests,) = (line for line in verdict(advise(counts, made, kind=IMAGES, dataset="cifar10")) if "Evidence" in line)
    assert f"; distance in skew {said}" in rests


def test_one_round_and_one_setting_are_not_several():
    once = own({"fedavg": 90, "fedopt": 92}, rounds=1)
    advice = advise(dirichlet(0.1), {"partitions": {}, "settings": []}, once, kind_of("digits"), "digits")
    said = "\n".join(lines(advice))
    assert "Your own runs have 1 round, which is short" in said
    assert "All methods and settings (1): --all." in said
    assert "1 rounds" not in said
