"""FedLC in proportion to travel: its limits are FedLC and FedAvg, and each client has a tau of its own."""

import pytest
import torch
from torch import Tensor

from fedskew import Run
from fedskew.losses import calibrated, calibrated_by_travel, cross_entropy
from tests.helpers import assert_close, integers, normal
from tests.helpers.views import view

COUNTS = torch.tensor([0, 1, 7, 120, 0, 2500])


@pytest.fixture
def problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return normal(generator, 9, 6) * 2, integers(generator, 1, 4, 9)


@pytest.mark.parametrize("missing", ["floor", "mask", "epsilon"])
@pytest.mark.parametrize("denominator", ["all", "others"])
@pytest.mark.parametrize(("travel", "tau"), [(0.3, 1.5), (1.0, 5.0), (40.0, 5.0), (0.0, 0.0)])
def test_the_tau_of_a_client(
    problem: tuple[Tensor, Tensor], travel: float, tau: float, missing: str, denominator: str
) -> None:
    loss = calibrated_by_travel(calibrated(5.0, missing, denominator), 1.0)
    expected = calibrated(tau, missing, denominator)(*problem, COUNTS)
    assert_close(loss(view(*problem, COUNTS, travel=travel)), expected)


def test_the_limits_are_fedlc_and_fedavg(problem: tuple[Tensor, Tensor]) -> None:
    base, seen = calibrated(), view(*problem, COUNTS, travel=0.2)
    assert torch.equal(calibrated_by_travel(base, 1e-9)(seen), base(*problem, COUNTS))
    assert_close(calibrated_by_travel(base, 1e15)(seen), cross_entropy(*problem, COUNTS))


def test_each_client_has_its_own(generator: torch.Generator) -> None:
    logits, labels = normal(generator, 2, 3, 5, 6), integers(generator, 0, 6, 2, 3, 5)
    counts, travel = integers(generator, 0, 50, 2, 3, 6), torch.tensor([[0.1, 0.4, 3.0], [0.7, 1.0, 2.0]])
    loss = calibrated_by_travel(calibrated(2.0), 1.5)
    both = loss(view(logits, labels, counts, travel=travel))
    for s in range(2):
        for k in range(3):
            tau = 2.0 * min(1.0, float(travel[s, k].double()) / 1.5)
            assert_close(both[s, k], calibrated(tau)(logits[s, k], labels[s, k], counts[s, k]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_type_of_the_logits_is_kept(dtype: torch.dtype, problem: tuple[Tensor, Tensor]) -> None:
    values = calibrated_by_travel(calibrated(), 1.0)(view(problem[0].to(dtype), problem[1], COUNTS))
    assert values.dtype == (dtype if dtype in (torch.float32, torch.float64) else torch.float32)


def test_runs_without_travel_keep_their_names() -> None:
    run = Run(algorithm="fedlc")
    assert run.algorithm == "fedlc:tau=5,missing=floor,denominator=all"
    assert run.hash == Run(algorithm="fedlc:travel=none").hash
    assert run.hash == "523cb23d440f8f2e"
    travelled = Run(algorithm="fedlc:travel=1")
    assert travelled.algorithm == "fedlc:tau=5,missing=floor,denominator=all,travel=1"
    assert travelled.hash != run.hash


def test_it_needs_a_travel() -> None:
    with pytest.raises(ValueError, match="fedlc:travel=1 needs optimizer=sgd on the client, not adam"):
        Run(algorithm="fedlc:travel=1", optimizer="adam")
    assert Run(algorithm="fedlc", optimizer="adam").build_algorithm().needs_travel is False


@pytest.mark.parametrize("travel", [0.0, -1.0])
def test_arguments_that_are_refused(travel: float) -> None:
    with pytest.raises(ValueError, match=f"travel is {travel:g}"):
        calibrated_by_travel(calibrated(), travel)
