"""Methods with a teacher, with features or with travel: the same in every engine, resumed, and in no message."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.algorithms import build_algorithm
from fedskew.core import tree
from fedskew.core.federation import Cohort
from fedskew.core.round import Batch, Context, gradient
from fedskew.engine.graphed import Compiled
from fedskew.simulation.session import simulate_many
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_close, assert_trees_equal
from tests.parity.test_engines import DIGITS, EXACT, SYNTHETIC, assert_same, assert_servers_close, played

ALONE = ["fedntd", "fedvls", "feddecorr", "fedlc:travel=1"]


@pytest.mark.parametrize("engine", ["threaded", "graphed"])
@pytest.mark.parametrize("algorithm", ["fedntd:classes=major", "fedntd:classes=vacant", "fedlc:travel=1"])
def test_variants_with_batch_norm(algorithm: str, engine: str) -> None:
    """Ragged clients, padding, batches of one image, momentum, 3 of 4 clients; a teacher has running statistics."""
    assert not assert_same({**DIGITS, "algorithm": algorithm}, engine)[-1].diverged


@pytest.mark.parametrize(
    "extra",
    [
        {"dropout_rate": 0.4, "grad_clip": 0.5, "weight_decay": 0.01, "weighting": "uniform", "seed": 5},
        {"model": "cnn:norm=group,padding=1,width=8"},
        {"model": f"{OWN}:plain"},
        {"batch_size": 1, "local_epochs": 1, "rounds": 2},
        {"lr_schedule": "exponential:0.5"},
    ],
    ids=str,
)
def test_other_settings(extra: dict[str, Any]) -> None:
    """A module of the user's own has features and a teacher too."""
    assert_same({**DIGITS, **extra, "algorithm": "fedlc:travel=1+fedntd+feddecorr"})


@pytest.mark.parametrize("algorithm", ALONE)
def test_seeds_together_equal_each_alone(algorithm: str) -> None:
    runs = [Run(**{**SYNTHETIC, "rounds": 2}, algorithm=algorithm, engine="stacked", seed=seed) for seed in (0, 3)]
    together = {position: record.server for position, record in simulate_many(runs)}
    for position, run in enumerate(runs):
        alone = list(simulate(run))[-1].server
        assert alone is not None
        assert together[position] is not None
        assert_servers_close(together[position], alone)


@pytest.mark.parametrize("fields", [DIGITS, SYNTHETIC], ids=["digits", "synthetic"])
@pytest.mark.parametrize(
    "algorithm",
    ["fedntd:beta=0", "fedntd:beta=0,classes=major", "feddecorr:beta=0", "fedlc:travel=1e12", "fedlc:tau=0,travel=1"],
)
def test_nothing_is_fedavg(algorithm: str, fields: dict[str, Any]) -> None:
    one, other = (played({**fields, "algorithm": name}, "serial")[-1].server for name in ("fedavg", algorithm))
    assert one is not None
    assert other is not None
    assert_servers_close(one, other)


def test_travel_near_0_is_fedlc() -> None:
    one, other = (played({**DIGITS, "algorithm": name}, "serial")[-1].server for name in ("fedlc", "fedlc:travel=1e-9"))
    assert one is not None
    assert other is not None
    assert_trees_equal(one.params, other.params)


@pytest.mark.parametrize("algorithm", ALONE)
def test_every_method_does_something(algorithm: str) -> None:
    one, other = (played({**DIGITS, "algorithm": name}, "serial")[-1].server for name in ("fedavg", algorithm))
    assert one is not None
    assert other is not None
    assert tree.norm(tree.sub(one.params, other.params), 0) > 1e-4


@pytest.mark.parametrize("algorithm", ["fedntd", "fedvls", "feddecorr", "fedlc:travel=1", "fedntd+feddecorr+scaffold"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(algorithm: str, tmp_path: Path) -> None:
    run = Run(**DIGITS, algorithm=algorithm)
    whole = list(simulate(run))
    steps = simulate(run, store=Store(tmp_path))
    next(steps)
    steps.close()
    rest = list(simulate(run, store=Store(tmp_path)))
    assert [record.round for record in rest][-1] == 3
    assert rest[-1].server is not None
    assert whole[-1].server is not None
    assert_trees_equal(rest[-1].server.params, whole[-1].server.params)
    assert_trees_equal(rest[-1].server.buffers, whole[-1].server.buffers)
    assert rest[-1].accuracy == whole[-1].accuracy


@pytest.mark.parametrize("algorithm", ALONE)
def test_nothing_is_in_a_message(algorithm: str) -> None:
    simulation = Simulation(Run(**DIGITS, algorithm=algorithm))
    cohort = Cohort(simulation.federation, np.arange(4), {}, 0)
    (update,) = simulation.engine.train(simulation.recipe(1), [simulation.server], [cohort], 1)
    assert update.message == {}
    assert update.client == {}
    assert simulation.server.correction == {}
    assert simulation.server.optimizer == {}


@pytest.mark.parametrize("pair", ["fedlc+fedvls", "fedvls+fedlc", "fedrs+fedvls"])
def test_two_base_losses_clash(pair: str) -> None:
    first, second = pair.split("+")
    with pytest.raises(ValueError, match=f"{first} and {second} both set the loss"):
        build_algorithm(pair)


def test_terms_add_up_in_any_order() -> None:
    one, other = (
        played({**DIGITS, "algorithm": name}, "serial")[-1].server
        for name in ("fedlc+fedntd+feddecorr", "feddecorr+fedntd+fedlc")
    )
    assert one is not None
    assert other is not None
    assert_servers_close(one, other)


def test_a_teacher_is_the_received_model_in_evaluation_mode() -> None:
    """Global running statistics, not those of the batch, and no gradient; the student's buffers do not see it."""
    simulation = Simulation(Run(**DIGITS, algorithm="fedntd"))
    recipe, server = simulation.recipe(1), simulation.server
    statistics = {name: leaf + 0.5 for name, leaf in server.buffers.items()}
    counts = torch.ones(10, dtype=torch.int64)
    context = Context(server.params, statistics, {}, {}, counts, torch.tensor(1.0))
    x = torch.randn(5, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    said = recipe.teach(context, x)
    expected, _ = simulation.model.apply(server.params, statistics, x, train=False)
    assert torch.equal(said.logits, expected.logits)
    assert not said.logits.requires_grad
    moved, _, buffers = gradient(recipe, context, server.params, server.buffers, Batch(x, torch.arange(5)))
    plain = Simulation(Run(**DIGITS, algorithm="fedavg")).recipe(1)
    _, _, without = gradient(plain, context, server.params, server.buffers, Batch(x, torch.arange(5)))
    assert_trees_equal(buffers, without)
    assert any(leaf.any() for leaf in moved.values())


@pytest.mark.parametrize("algorithm", ["fedlc:travel=1+fedntd+feddecorr", "fedvls"])
def test_a_step_compiles_as_one_graph(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With frozen records, a teacher, features and a mask; the engine on a GPU does so with another backend."""
    compile_ = torch.compile

    def whole(function: Any, **_: Any) -> Any:
        return compile_(function, backend="aot_eager", dynamic=False, fullgraph=True)

    monkeypatch.setattr(torch, "compile", whole)
    simulation = Simulation(Run(**DIGITS, algorithm=algorithm))
    recipe, server = simulation.recipe(1), simulation.server
    compiled: Any = Compiled(recipe)
    counts = torch.from_numpy(simulation.federation.counts(np.arange(1)))[0]
    context = Context(server.params, server.buffers, {}, {}, counts, torch.tensor(0.3, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64, generator=generator)
    params = {
        name: leaf + 0.1 * torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator)
        for name, leaf in server.params.items()
    }
    for mask in (None, torch.arange(6) < 4):
        batch = Batch(x, torch.tensor([0, 1, 2, 3, 0, 1]), mask)
        one = gradient(compiled, context, params, server.buffers, batch)
        other = gradient(recipe, context, params, server.buffers, batch)
        assert_trees_close(one[0], other[0], **EXACT)
        assert_trees_close(one[2], other[2], **EXACT)
