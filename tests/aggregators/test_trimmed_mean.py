"""The coordinate-wise trimmed mean and the median."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedskew import Algorithm, Run, simulate
from fedskew.aggregators import trimmed_mean, weighted_mean
from fedskew.algorithms import build_algorithm
from fedskew.core import tree
from fedskew.core.tree import Params
from fedskew.simulation.simulation import Simulation
from tests.helpers import assert_close, normal

RUN = {"dataset": "synthetic:1,1,max_size=60", "clients": 5, "rounds": 2, "weighting": "uniform"}


def merged(share: float, values: torch.Tensor) -> torch.Tensor:
    return trimmed_mean(share).merge({"w": values}, torch.full((len(values),), 1 / len(values)))["w"]


def test_by_hand() -> None:
    values = torch.tensor([[1.0, 9.0], [2.0, -1e30], [6.0, 5.0], [100.0, 6.0], [3.0, 7.0]])
    assert merged(0.2, values).tolist() == pytest.approx([(2 + 6 + 3) / 3, (5 + 6 + 7) / 3])
    assert merged(0.5, values).tolist() == [3.0, 6.0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_the_median_is_numpys(count: int, generator: torch.Generator) -> None:
    values = normal(generator, count, 6)
    assert_close(merged(0.5, values), torch.from_numpy(np.median(values.numpy(), axis=0)))


@pytest.mark.parametrize(("count", "share"), [(10, 0.1), (10, 0.3), (20, 0.25), (100, 0.29)])
def test_the_trimmed_mean_is_scipys(count: int, share: float, generator: torch.Generator) -> None:
    values = normal(generator, count, 6)
    expected = stats.trim_mean(values.numpy(), round(share * count) / count + 1e-12, axis=0)
    assert_close(merged(share, values), torch.from_numpy(expected))


def test_one_is_cut_off_where_any_is_to_be() -> None:
    assert merged(0.01, torch.tensor([[1.0], [2.0], [3e38]])).item() == 2.0


@pytest.mark.parametrize("attack", [3e38, -3e38, 0.0, 1e-3])
def test_as_many_attackers_as_are_cut_off_stay_within_what_the_others_sent(attack: float) -> None:
    honest = torch.linspace(-1, 2, 8)[:, None].repeat(1, 3)
    result = merged(0.2, torch.cat([honest, torch.full((2, 3), attack)]))
    assert ((result >= honest.min()) & (result <= honest.max())).all()


def test_whole_numbers() -> None:
    assert merged(0.5, torch.tensor([[3], [9], [4]])).tolist() == [4.0]


@pytest.mark.parametrize("share", [0.0, -0.1, 0.51, float("nan")])
def test_a_share_that_cannot_be(share: float) -> None:
    with pytest.raises(ValueError, match="share is"):
        trimmed_mean(share)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_round_is_the_median_of_the_clients(engine: str) -> None:
    run, seen = Run(**RUN, algorithm="fedlc+median", precision="fp64", engine=engine), []

    def look(observed):  # type: ignore[no-untyped-def]
        seen.append(observed)
        return {}

    list(simulate(run, [look]))
    for observed in seen:
        for name, leaf in observed.after.params.items():
            expected = observed.before.params[name] + observed.update.delta[name].median(0).values
            assert_close(leaf, expected)


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match="fednova and median both set the aggregate"):
        build_algorithm("fednova+median")
    with pytest.raises(ValueError, match="median gives all clients the same weight: weighting is 'samples'"):
        Run(algorithm="median")
    with pytest.raises(ValueError, match="server averages its correction's messages"):
        Simulation(Run(**RUN, algorithm="scaffold+trimmed"))


class _Longest(weighted_mean):
    """Not a sum, but with weights: the delta with the largest product of weight and norm."""

    linear = False

    def merge(self, values: Params, coefficients: Tensor) -> Params:  # type: ignore[override]
        return tree.rows(values, int((coefficients * tree.norm(values, 1)).argmax()))


def test_another_aggregate_that_is_no_sum_may_have_weights() -> None:
    run = Run(**{**RUN, "weighting": "samples"}, algorithm=Algorithm("longest", aggregate=_Longest()))
    assert not list(simulate(run))[-1].diverged


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedskew.engine.distributed import Ranks

    monkeypatch.setattr("fedskew.simulation.simulation.join_ranks", lambda device: Ranks(0, 2))
    with pytest.raises(ValueError, match="median needs all clients of a round in one process"):
        Simulation(Run(**RUN, algorithm="median"))
