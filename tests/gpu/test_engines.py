"""Engines that capture their steps as CUDA graphs against `serial`; `make test-gpu` runs all of this folder."""

from typing import Any

import pytest
import torch

from fedskew import Run
from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN, assert_trees_close

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICE = "cuda"
FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "batch_size": 16,
    "momentum": 0.9,
    "rounds": 6,
    "dropout_rate": 0.3,
    "lr_schedule": "exponential:0.5",
    "lr": 0.05,
}
PARTS = ("params", "buffers", "correction", "optimizer")
METHODS = pytest.mark.parametrize("algorithm", ["fedlc", "fedprox:mu=0.1", "scaffold", "fedlc+fednova", "fedopt"])


def played(engine: str, **more: Any) -> tuple[Simulation, Server]:
    """A run to its end on the GPU, and its last global model."""
    simulation = Simulation(Run(**{"precision": "fp64", **FIELDS, **more}, engine=engine, device=DEVICE))
    for _ in range(simulation.run.rounds):
        advance([simulation])
    return simulation, simulation.server


def assert_near(one: Server, other: Server, tolerance: float) -> None:
    for part in PARTS:
        assert_trees_close(getattr(one, part), getattr(other, part), rtol=tolerance, atol=tolerance)


@METHODS
@pytest.mark.parametrize("model", ["logistic", "cnn:padding=1,width=4"])
def test_captured_cohorts_agree_with_serial_and_repeat_to_the_bit(algorithm: str, model: str) -> None:
    """Whoever answers and whatever the rate."""
    _, expected = played("serial", algorithm=algorithm, model=model)
    simulation, first = played("stacked", algorithm=algorithm, model=model)
    assert simulation.engine._rounds.lanes is not None  # type: ignore[attr-defined]
    assert_near(first, expected, 1e-9)
    assert_near(played("stacked", algorithm=algorithm, model=model)[1], first, 0.0)


@METHODS
@pytest.mark.parametrize("model", ["mlp:hidden=9,depth=2", "cnn:norm=group,padding=1,width=16"])
def test_graphed_clients_agree_with_serial_and_repeat_to_the_bit(algorithm: str, model: str) -> None:
    _, expected = played("serial", algorithm=algorithm, model=model)
    _, first = played("graphed", algorithm=algorithm, model=model)
    assert_near(first, expected, 1e-9)
    assert_near(played("graphed", algorithm=algorithm, model=model)[1], first, 0.0)


@pytest.mark.filterwarnings("default")  # PyTorch's compiler has warnings of its own
@pytest.mark.parametrize("model", ["cnn:padding=1,width=16", "mcmahan:padding=2"])
def test_graphed_clients_with_our_kernels_agree_with_serial(model: str) -> None:
    """The kernels add in float32, so a short run is compared, and more loosely."""
    fields = {"algorithm": "fedlc", "model": model, "precision": "fp32", "rounds": 1, "lr": 0.01}
    assert_near(played("graphed", **fields)[1], played("serial", **fields)[1], 1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_graphed_resnet_agrees_with_serial_and_repeats_to_the_bit(precision: str) -> None:
    """It is as far from float64 as `serial` is, within a factor of two."""
    fields = {"algorithm": "fedlc", "model": "resnet18", "precision": precision, "rounds": 1, "lr": 0.01}
    exact, rounded = played("serial", **fields | {"precision": "fp64"})[1], played("serial", **fields)[1]
    simulation, first = played("graphed", **fields)
    assert simulation.engine._stage.recipe.model.module.fused  # type: ignore[attr-defined]
    assert _away(first, exact) <= 2 * _away(rounded, exact) + 1e-3
    assert_near(played("graphed", **fields)[1], first, 0.0)


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.3"])
@pytest.mark.parametrize("model", ["cnn:padding=1,width=16", "mcmahan:padding=2"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc", "scaffold", "fedntd"])
def test_clients_in_kernels_with_a_client_axis_agree_with_serial_and_repeat_to_the_bit(
    algorithm: str, model: str, partition: str
) -> None:
    """In bfloat16 results are as far from float32 as those of `serial` in bfloat16 are, within a factor of three.

    Both round, but at other places, and where rounding changes which pixel of a pooling window is the largest they part
    by a step. So their distances are of one size but not equal; a wrong kernel is off by far more than a factor.
    """
    fields = {"algorithm": algorithm, "model": model, "partition": partition, "rounds": 2, "lr": 0.01, "clients": 5}
    fields |= {"dataset": "digits", "augment": "crop_flip", "dropout_rate": 0.0, "precision": "bf16"}
    exact, rounded = played("serial", **fields | {"precision": "fp32"})[1], played("serial", **fields)[1]
    simulation, first = played("auto", **fields)
    assert simulation.engine_name == "stacked"
    assert simulation.engine._rounds.lanes.served  # type: ignore[attr-defined]
    assert _away(first, exact) <= 3 * _away(rounded, exact) + 1e-4
    assert_near(played("auto", **fields)[1], first, 0.0)


def _away(one: Server, other: Server) -> float:
    return float(tree.norm(tree.sub(one.params, other.params), 0) / tree.norm(other.params, 0))


@pytest.mark.parametrize("algorithm", ["reading", "masking", "tabled", "inverting", "weighing", "unit", "remembered"])
@pytest.mark.parametrize("model", ["mlp:hidden=9", "cnn:padding=1,width=4"])
def test_parts_of_ones_own_run_under_auto(algorithm: str, model: str) -> None:
    """Steps that read numbers are not captured; others are."""
    fields = {"algorithm": f"{OWN.parent / 'own_methods.py'}:{algorithm}", "model": model}
    simulation, made = played("auto", **fields)
    assert_near(made, played("serial", **fields)[1], 1e-9)
    reads = algorithm in ("reading", "masking", "tabled", "inverting")
    assert simulation.engine_name == ("stacked" if model.startswith("mlp") else "serial" if reads else "graphed")
    if simulation.engine_name == "stacked":
        assert (simulation.engine._rounds.lanes is None) == reads  # type: ignore[attr-defined]
