"""Identity 11: engine, company and order of clients change no result beyond rounding."""

from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import RoundRecord, Run, simulate
from fedskew.algorithms import ALGORITHMS
from fedskew.core import tree
from fedskew.core.federation import Cohort
from fedskew.core.round import Server, server_update
from fedskew.engine import ENGINES, Graphed, Serial, Stacked, Threaded, graphed
from fedskew.simulation.session import simulate_many
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN, assert_trees_close
from tests.helpers.parts import COMBINATIONS, METHODS, fields_for

EXACT = {"rtol": 1e-9, "atol": 1e-9}
DIGITS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "clients_per_round": 3,
    "model": "cnn:padding=1,width=8",
    "rounds": 3,
    "local_epochs": 2,
    "batch_size": 16,
    "lr": 0.05,
    "momentum": 0.9,
    "precision": "fp64",
}
SYNTHETIC: dict[str, Any] = {
    "dataset": "synthetic:1,1,max_size=90",
    "clients": 6,
    "clients_per_round": 4,
    "rounds": 4,
    "local_epochs": 2,
    "batch_size": 16,
    "lr": 0.02,
    "momentum": 0.9,
    "precision": "fp64",
}


def played(fields: dict[str, Any], engine: str) -> list[RoundRecord]:
    return list(simulate(Run(**fields, engine=engine)))


@cache
def reference(run: Run) -> list[RoundRecord]:
    """What `serial` makes of a run, which several engines are compared with."""
    return list(simulate(run))


def assert_servers_close(one: Server, other: Server, **tolerance: float) -> None:
    for part in ("params", "buffers", "correction", "optimizer"):
        assert_trees_close(getattr(one, part), getattr(other, part), **(tolerance or EXACT))


def assert_same(fields: dict[str, Any], engine: str = "stacked") -> list[RoundRecord]:
    """An engine agrees with serial after every round, in the model and in everything that is measured."""
    expected, other = reference(Run(**fields, engine="serial")), played(fields, engine)
    assert len(expected) == len(other) == fields["rounds"]
    for a, b in zip(expected, other, strict=True):
        assert (a.engine, b.engine) == ("serial", engine)
        assert a.clients == b.clients
        assert a.server is not None
        assert b.server is not None
        assert_servers_close(a.server, b.server)
        assert a.accuracy == b.accuracy
        assert a.loss == pytest.approx(b.loss, rel=1e-9)
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-9)
    return other


def test_the_engines_are_those() -> None:
    assert ENGINES["serial"] is Serial
    assert ENGINES["stacked"] is Stacked
    assert ENGINES["threaded"] is Threaded


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stacked` with the cohort in fixed memory, as on a GPU."""
    monkeypatch.setitem(ENGINES, "stacked", partial(Stacked, captured=True))


@pytest.mark.parametrize(
    ("algorithm", "engine"),
    [*((text, "stacked") for text in METHODS), *product((*ALGORITHMS, *COMBINATIONS), ("threaded", "graphed"))],
)
def test_every_method_with_batch_norm(algorithm: str, engine: str) -> None:
    """Ragged clients, partial batches (one of a single image), several epochs, momentum, 3 of 4 clients a round."""
    records = assert_same({**DIGITS, **fields_for(algorithm), "algorithm": algorithm}, engine)
    assert all(record.clients == 3 for record in records)
    assert not records[-1].diverged


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("algorithm", METHODS)
def test_every_method_in_fixed_memory(algorithm: str) -> None:
    assert_same({**DIGITS, **fields_for(algorithm), "algorithm": algorithm})
    assert_same({**SYNTHETIC, **fields_for(algorithm), "algorithm": algorithm})


SETTINGS = pytest.mark.parametrize(
    "extra",
    [
        {"dropout_rate": 0.4, "rounds": 5},
        {"grad_clip": 0.2},
        {"weight_decay": 0.01},
        {"weighting": "uniform"},
        {"batch_size": 1, "local_epochs": 1},
        {"batch_size": 64},
        {"batch_size": 33},
        {"clients_per_round": 1},
        {"clients_per_round": 4},
        {"lr_schedule": "exponential:0.5"},
        {"model": "cnn:norm=group,padding=1,width=8"},
        {"model": "mlp:hidden=9,depth=2"},
        {"model": f"{OWN}:plain"},
        {"dropout_rate": 0.3, "grad_clip": 0.5, "weight_decay": 0.01, "weighting": "uniform", "seed": 5},
    ],
    ids=str,
)


@pytest.mark.parametrize("algorithm", ["fedlc+scaffold", "fednova"])
@SETTINGS
def test_every_setting(algorithm: str, extra: dict[str, Any]) -> None:
    assert_same({**DIGITS, **extra, "algorithm": algorithm})


@pytest.mark.usefixtures("captured")
@SETTINGS
def test_every_setting_in_fixed_memory(extra: dict[str, Any]) -> None:
    assert_same({**DIGITS, **extra, "algorithm": "fedlc+scaffold"})


@pytest.mark.parametrize("algorithm", METHODS)
def test_every_method_on_logistic_regression(algorithm: str) -> None:
    assert_same({**SYNTHETIC, **fields_for(algorithm), "algorithm": algorithm})


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "yogi"])
@pytest.mark.parametrize("fixed", [False, True])
def test_adaptive_clients(optimizer: str, fixed: bool, request: pytest.FixtureRequest) -> None:
    if fixed:
        request.getfixturevalue("captured")
    assert_same({**SYNTHETIC, "momentum": 0.0, "optimizer": optimizer, "algorithm": "fedlc+fedprox"})


def test_single_precision_within_a_tolerance() -> None:
    fields = {**DIGITS, "precision": "fp32", "algorithm": "fedlc"}
    one, other = (played(fields, engine)[-1].server for engine in ("serial", "stacked"))
    assert one is not None
    assert other is not None
    assert next(iter(one.params.values())).dtype == torch.float32
    assert_servers_close(one, other, rtol=1e-3, atol=1e-4)


def test_buffers_of_a_users_module_move_or_the_engine_is_refused() -> None:
    """Instance norm with running statistics runs by `serial`, which `auto` takes; other engines name it."""
    fields = {**DIGITS, "rounds": 1, "model": f"{OWN}:instance_normed", "algorithm": "fedavg"}
    simulation = Simulation(Run(**fields))
    assert simulation.engine_name == "serial"
    before = tree.map(torch.clone, simulation.server.buffers)
    advance([simulation])
    assert any(not torch.equal(leaf, before[name]) for name, leaf in simulation.server.buffers.items())
    for engine in ("stacked", "graphed", "threaded"):
        with pytest.raises(ValueError, match=rf"{engine} .*engine=serial"):
            played(fields, engine)


@pytest.mark.usefixtures("captured")
def test_augmented_images_in_fixed_memory() -> None:
    assert_same({**DIGITS, "augment": "crop_flip", "algorithm": "fedlc"})


@pytest.mark.parametrize("engine", ["serial", "stacked", "captured"])
@pytest.mark.parametrize(
    ("fields", "algorithm"),
    [
        (SYNTHETIC, "fedlc+scaffold"),
        (SYNTHETIC, "fedopt"),
        ({**SYNTHETIC, "dropout_rate": 0.6}, "scaffold"),
        (DIGITS, "fedlc"),
        (DIGITS, "fednova"),
        ({**DIGITS, "dataset": f"{OWN}:seed_scaled_digits", "model": "logistic", "lr": 0.001}, "fedavg"),
    ],
    ids=["synthetic-fedlc+scaffold", "synthetic-fedopt", "nobody answers", "digits-fedlc", "digits-fednova", "scaled"],
)
def test_seeds_together_equal_each_alone(
    engine: str, fields: dict[str, Any], algorithm: str, request: pytest.FixtureRequest
) -> None:
    if engine == "captured":
        engine = "stacked"
        request.getfixturevalue("captured")
    runs = [Run(**fields, algorithm=algorithm, engine=engine, seed=seed) for seed in (0, 1, 7)]
    together: dict[int, list[RoundRecord]] = {0: [], 1: [], 2: []}
    for position, record in simulate_many(runs):
        together[position].append(record)
    for position, run in enumerate(runs):
        alone = list(simulate(run))
        assert [record.round for record in together[position]] == [record.round for record in alone]
        for a, b in zip(together[position], alone, strict=True):
            assert a.clients == b.clients
            assert a.server is not None
            assert b.server is not None
            assert_servers_close(a.server, b.server)
            assert (a.train_loss is None) == (b.train_loss is None)
            if a.train_loss is not None:
                assert a.train_loss == pytest.approx(b.train_loss, rel=1e-9)
    ends = [records[-1].server for records in together.values()]
    assert ends[0] is not None
    assert ends[1] is not None
    assert tree.norm(tree.sub(ends[0].params, ends[1].params), 0) > 1e-3


@pytest.mark.parametrize("engine", ["serial", "stacked"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc+scaffold", "fednova", "fedlc+fedopt"])
def test_the_order_of_clients_does_not_matter(engine: str, algorithm: str) -> None:
    fields = {**DIGITS, "clients_per_round": 4, "algorithm": algorithm, "engine": engine}
    simulation = Simulation(Run(**fields))
    generator = torch.Generator().manual_seed(1)
    states = tree.map(
        lambda leaf: 0.01 * torch.randn(4, *leaf.shape, generator=generator, dtype=torch.float64),
        simulation.algorithm.correction.client_state(simulation.server.params),
    )
    sizes = torch.from_numpy(simulation.federation.sizes(np.arange(4))).double()

    def play(order: list[int]) -> tuple[Any, Server]:
        index = torch.tensor(order)
        cohort = Cohort(simulation.federation, np.array(order), tree.rows(states, index), 0)
        (update,) = simulation.engine.train(simulation.recipe(1), [simulation.server], [cohort], 1)
        return update, server_update(simulation.algorithm, simulation.server, update, sizes[index])

    update, server = play([0, 1, 2, 3])
    turned, other = play([2, 3, 0, 1])
    assert_servers_close(server, other)
    back = torch.tensor([2, 3, 0, 1])
    for name in ("delta", "buffers", "client", "message"):
        assert_trees_close(tree.rows(getattr(turned, name), back), getattr(update, name), **EXACT)
    assert turned.travel[back].tolist() == update.travel.tolist()
    assert turned.loss[back].tolist() == pytest.approx(update.loss.tolist(), rel=1e-9)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_client_does_not_depend_on_its_company(engine: str) -> None:
    simulation = Simulation(Run(**DIGITS, algorithm="fedlc", engine=engine))

    def play(order: list[int]) -> Any:
        cohort = Cohort(simulation.federation, np.array(order), {}, 0)
        return simulation.engine.train(simulation.recipe(1), [simulation.server], [cohort], 1)[0]

    everyone = play([0, 1, 2, 3])
    for client in range(4):
        alone = play([client])
        assert_trees_close(tree.rows(alone.delta, 0), tree.rows(everyone.delta, client), **EXACT)
        assert_trees_close(tree.rows(alone.buffers, 0), tree.rows(everyone.buffers, client), **EXACT)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_the_number_of_threads_does_not_matter(engine: str) -> None:
    fields = {**SYNTHETIC, "algorithm": "fedlc"}
    one = played(fields, engine)[-1].server
    try:
        torch.set_num_threads(2)
        two = played(fields, engine)[-1].server
    finally:
        torch.set_num_threads(1)
    assert one is not None
    assert two is not None
    assert_servers_close(one, two)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_the_same_run_twice_is_bit_identical(engine: str) -> None:
    fields = {**DIGITS, "algorithm": "fedlc+scaffold"}
    one, two = (played(fields, engine)[-1].server for _ in range(2))
    assert one is not None
    assert two is not None
    assert_servers_close(one, two, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("algorithm", ["fedlc", "scaffold", "fedsam"])
@pytest.mark.parametrize(
    "extra",
    [{}, {"momentum": 0.0, "weight_decay": 0.01}, {"weight_decay": 0.01, "lr_schedule": "exponential:0.5"}],
    ids=str,
)
def test_graphed_moves_parameters_in_place(
    algorithm: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU does with a network that is too large to compile."""
    moves = []
    move = graphed.Moving.move
    monkeypatch.setattr(graphed.Moving, "move", lambda *given: (moves.append(given), move(*given))[1])
    monkeypatch.setattr(graphed, "may_compile", lambda *_: True)
    monkeypatch.setattr(graphed, "worth_compiling", lambda _: False)
    monkeypatch.setattr(graphed.kernels, "available", lambda: False)
    fields = {**DIGITS, "algorithm": algorithm, **extra}
    assert_same(fields, "graphed")
    assert moves


@pytest.mark.parametrize("change", [{"algorithm": "fedlc:tau=20"}, {"momentum": 0.0}, {"grad_clip": 0.1}], ids=str)
@pytest.mark.parametrize("make", [Serial, Stacked, partial(Stacked, captured=True), Threaded, Graphed])
def test_an_engine_that_has_run_one_recipe_runs_another(make: Any, change: dict[str, Any]) -> None:
    first, second = Simulation(Run(**DIGITS)), Simulation(Run(**{**DIGITS, **change}))
    engine, fresh = make(first.settings), make(first.settings)
    engine.train(first.recipe(1), [first.server], [first.cohort(1)], 1)
    given = replace(second.recipe(1), model=first.model), [second.server], [second.cohort(1)], 1
    (made,), (expected,) = engine.train(*given), fresh.train(*given)
    assert_trees_close(made.delta, expected.delta, **EXACT)


def test_graphed_keeps_its_step_for_another_rate() -> None:
    simulation = Simulation(Run(**DIGITS, lr_schedule="exponential:0.5", engine="graphed"))
    stages = []
    for _ in range(2):
        advance([simulation])
        stages.append(simulation.engine._stage)  # type: ignore[attr-defined]
    assert stages[0] is stages[1]
