"""A recorded step gives the bits of the step that was recorded, whatever else changes from step to step."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

from fedskew import Run
from fedskew.core.round import Server
from fedskew.engine import recorded
from fedskew.engine.recorded import Recordings
from fedskew.engine.stacked import Stacked
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN, assert_trees_close
from tests.helpers.parts import METHODS, fields_for

FIELDS: dict[str, Any] = {
    "dataset": "synthetic:1,1,max_size=90",
    "clients": 6,
    "rounds": 4,
    "batch_size": 8,
    "lr": 0.02,
    "momentum": 0.9,
    "engine": "stacked",
}
IMAGES: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "model": "cnn:padding=1,width=4",
    "clients": 4,
    "batch_size": 16,
    "rounds": 5,
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record what is taken for the third time."""
    monkeypatch.setattr(recorded, "_OFTEN", 3)


def played(fields: dict[str, Any], seeds: int = 1) -> tuple[list[Server], list[float | None], Recordings]:
    """The servers at the end, the losses of every round, and what was recorded."""
    simulations = [Simulation(Run(**{**FIELDS, **fields, "seed": seed})) for seed in range(seeds)]
    records = [record for _ in range(simulations[0].run.rounds) for record in advance(simulations)]
    engine = simulations[0].engine
    assert isinstance(engine, Stacked)
    return [s.server for s in simulations], [record.train_loss for record in records], engine.recordings


def assert_repeats(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seeds: int = 1) -> None:
    servers, losses, recordings = played(fields, seeds)
    assert recordings.replays
    with monkeypatch.context() as patched:
        patched.setattr(recorded, "_OFTEN", -1)
        expected, known, nothing = played(fields, seeds)
    assert not nothing.replays
    assert losses == known
    for one, other in zip(servers, expected, strict=True):
        for part in ("params", "buffers", "correction", "optimizer"):
            assert_trees_close(getattr(one, part), getattr(other, part), rtol=0.0, atol=0.0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("algorithm", METHODS)
def test_every_method(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_repeats({**fields_for(algorithm), "algorithm": algorithm}, monkeypatch)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "extra",
    [
        {"model": "mlp:hidden=9,depth=2", "grad_clip": 0.2, "weight_decay": 0.01},
        {"precision": "bf16", "model": "mlp:hidden=9"},
        {"precision": "bf16", "model": "mlp:hidden=9", "algorithm": "feddecorr"},
        {"precision": "fp64", "optimizer": "adam", "momentum": 0.0},
        {"dropout_rate": 0.4, "rounds": 8},
        {"lr_schedule": "exponential:0.5", "rounds": 2},
        {**IMAGES, "algorithm": "fedlc+fedntd"},
        {**IMAGES, "precision": "bf16"},
    ],
    ids=str,
)
def test_every_setting(extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_repeats({"algorithm": "fedlc", **extra}, monkeypatch)


@pytest.mark.usefixtures("soon")
def test_seeds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_repeats({"algorithm": "fedlc+scaffold"}, monkeypatch, seeds=3)


@pytest.mark.usefixtures("soon")
def test_another_rate_is_another_recipe() -> None:
    """What was recorded has the rate in it."""
    simulation = Simulation(Run(**FIELDS, lr_schedule="exponential:0.5"))
    engine = simulation.engine
    assert isinstance(engine, Stacked)
    advance([simulation])
    before = dict(engine.recordings.replays)
    advance([simulation])
    assert before
    assert not {*map(id, before.values())} & {*map(id, engine.recordings.replays.values())}


MINE = """
from fedskew import Algorithm
from fedskew.losses import cross_entropy
from fedskew.models import mlp


def halved(logits, labels, counts):
    return cross_entropy(logits, labels, counts) / 2


def own_loss():
    return Algorithm("own_loss", loss=halved)


def half_frozen(input_shape, num_classes):
    module = mlp(input_shape, num_classes, hidden=8)
    module.hidden[0].weight.requires_grad = False
    return module
"""


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("part", [{"algorithm": "own_loss"}, {"model": "half_frozen"}], ids=str)
def test_what_a_recording_could_miss_is_not_recorded(part: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    _, _, recordings = played({name: f"{path}:{value}" for name, value in part.items()})
    assert not recordings.replays


def test_a_number_that_is_read_from_a_tensor_is_not_recorded() -> None:
    given = torch.tensor([1.0, 2.0])
    with recorded._Recorder([given]) as recorder:
        made = given * float(given.sum())
    assert recorder.graph([made]) is None


def test_a_tensor_that_is_given_twice_is_not_recorded() -> None:
    given = torch.tensor([1.0, 2.0])
    with recorded._Recorder([given, given]) as recorder:
        made = given + given
    assert recorder.graph([made]) is None


def noted(clients: int, step: Callable[[Tensor], Tensor]) -> Graph:
    given = torch.ones(clients, 4)
    with recorded._Recorder([given]) as recorder:
        made = step(given)
    graph = recorder.graph([made])
    assert graph is not None
    return graph


def test_sizes_follow_the_number_of_clients() -> None:
    def step(given: Tensor) -> Tensor:
        return given.new_zeros(4 * len(given)) + given.reshape(-1)

    graph = noted(6, step)
    assert recorded._generalise(graph, noted(5, step), 6, 5)
    replay = recorded._split(graph, 1)
    for clients in (3, 9):
        assert replay.move(*replay.settle(clients), torch.ones(clients, 4))[0].tolist() == [1.0] * 4 * clients


@pytest.mark.parametrize(
    "step",
    [
        lambda given: given.new_zeros(len(given) + 1),
        lambda given: given * len(given) ** 0.5,
        lambda given: given.exp() if len(given) == 6 else given.sin(),
        lambda given: given.exp() if len(given) == 6 else given.exp().sin(),
        lambda given: given.sum(0) if len(given) == 6 else given.sum(0, keepdim=True),
    ],
    ids=["a size out of proportion", "a factor", "another operation", "more operations", "other arguments"],
)
def test_what_else_follows_the_number_of_clients_is_not_recorded(step: Callable[[Tensor], Tensor]) -> None:
    assert not recorded._generalise(noted(6, step), noted(5, step), 6, 5)


@pytest.mark.usefixtures("soon")
def test_one_recording_serves_any_number_of_clients() -> None:
    """How many clients still take a step is different in most rounds."""
    simulation = Simulation(Run(**{**FIELDS, "clients": 12, "dropout_rate": 0.4, "rounds": 30}))
    engine, numbers = simulation.engine, set[int]()
    assert isinstance(engine, Stacked)
    for _ in range(30):
        advance([simulation])
        numbers.add(len(simulation.cohort(simulation.round).clients))
    kinds = 3 * 2 * 2  # one client, two or more; in the first step or a later one; with a mask or without
    assert len(numbers) > 3
    assert 0 < len(engine.recordings.replays) <= len(engine.recordings.taken) <= kinds


def test_what_is_changed_in_place_is_made_anew_at_every_step() -> None:
    def step(fixed: Tensor, moving: Tensor) -> Tensor:
        return (fixed * 2).add_(moving)

    fixed, moving = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    with recorded._Recorder([fixed, moving]) as recorder:
        made = step(fixed, moving)
    graph = recorder.graph([made])
    assert graph is not None
    replay = recorded._split(graph, 1)
    settled = replay.settle(fixed)
    for _ in range(2):
        assert replay.move(*settled, moving)[0].tolist() == made.tolist()


def test_what_depends_on_the_context_alone_is_computed_once() -> None:
    fixed, moving = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    with recorded._Recorder([fixed, moving]) as recorder:
        made = fixed.exp() * 2 + moving
    graph = recorder.graph([made])
    assert graph is not None
    replay = recorded._split(graph, 1)
    (settled,) = replay.settle(fixed)
    assert settled.tolist() == (fixed.exp() * 2).tolist()
    assert replay.move(settled, moving)[0].tolist() == made.tolist()


def test_what_depends_on_shapes_alone_is_computed_once() -> None:
    def step(given: Tensor) -> Tensor:
        return given + torch.full_like(given.exp(), 0.1).neg()

    graph = noted(6, step)
    assert recorded._generalise(graph, noted(5, step), 6, 5)
    replay = recorded._split(graph, 1)
    (settled,) = replay.settle(7)
    assert torch.equal(settled, torch.full((7, 4), -0.1))
    given = torch.rand(7, 4)
    assert torch.equal(replay.move(settled, given)[0], step(given))


def test_chance_is_not_recorded() -> None:
    given = torch.tensor([1.0, 2.0])
    with recorded._Recorder([given]) as recorder:
        made = given * torch.rand(2)
    assert recorder.graph([made]) is None


def test_training_imports_neither_the_compiler_nor_symbolic_shapes() -> None:
    """Each would take as long as a hundred rounds of a small model."""
    code = (
        "import sys\nfrom fedskew import Run, simulate\n"
        "list(simulate(Run(dataset='synthetic:1,1,max_size=90', clients=4, rounds=20, engine='stacked')))\n"
        "sys.exit(', '.join({'sympy', 'torch._dynamo'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
