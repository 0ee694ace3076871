"""Frozen parameters are no one's to train: not the optimiser's, a correction's or a message's."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew import Run, load_model, simulate
from fedskew.runs.export import export_model
from fedskew.runs.store import Store
from fedskew.simulation import simulate_many
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_close

FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "clients_per_round": 3,
    "rounds": 3,
    "batch_size": 16,
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.01,
    "precision": "fp64",
}
MINE = """
from torch import nn
from fedskew.models import mlp
from fedskew.models.convnet import cnn


def frozen(module, start):
    for name, leaf in module.named_parameters():
        leaf.requires_grad = not name.startswith(start)
    return module


def probe():
    return frozen(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)), "1.")


def ours(input_shape, num_classes):
    return frozen(mlp(input_shape, num_classes, hidden=8), "hidden")


def head(input_shape, num_classes):
    return frozen(cnn(input_shape, num_classes, width=4, padding=1), "linear.weight")


def nothing():
    return frozen(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "")
"""
ENGINES = ("serial", "stacked", "threaded", "graphed")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def frozen_of(simulation: Simulation) -> dict[str, torch.Tensor]:
    model = simulation.model
    return {name: model.module.get_parameter(name).detach().clone() for name in model.frozen}


@pytest.mark.parametrize("name", ["probe", "ours", "head"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc+scaffold", "feddyn+fedavgm", "fedcm+fedsam"])
def test_they_stay_and_nobody_else_sees_them(mine: Path, name: str, algorithm: str) -> None:
    run = Run(**FIELDS, model=f"{mine}:{name}", algorithm=algorithm, engine="serial")
    simulation = Simulation(run)
    before = frozen_of(simulation)
    assert before
    (update,) = simulation.engine.train(simulation.recipe(1), [simulation.server], [simulation.cohort(1)], 1)
    for tree in (update.delta, update.client, update.message, simulation.server.params, simulation.server.optimizer):
        assert not any(frozen in kept for frozen in before for kept in tree)
    assert all(torch.equal(leaf, before[key]) for key, leaf in frozen_of(simulation).items())


@pytest.mark.parametrize(("name", "engines"), [("probe", ENGINES[:2]), ("ours", ENGINES), ("head", ENGINES)])
def test_every_engine_agrees(mine: Path, name: str, engines: tuple[str, ...]) -> None:
    made = []
    for engine in engines:
        run = Run(**FIELDS, model=f"{mine}:{name}", algorithm="fedlc+scaffold", engine=engine)
        last = list(simulate(run))[-1].server
        assert last is not None
        made.append(last.params)
    for other in made[1:]:
        assert_trees_close(other, made[0], rtol=1e-9, atol=1e-11)


def test_they_are_in_exports_and_survive_a_resumed_run(mine: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    run = Run(**{**FIELDS, "precision": "fp32"}, model=f"{mine}:probe", algorithm="scaffold")
    list(simulate(run.model_copy(update={"rounds": 2}), store=store))
    list(simulate(run, store=store))
    export_model(store.folder(run.hash), tmp_path / "model.safetensors")
    module = load_model(tmp_path / "model.safetensors", own_files=True).module
    first = frozen_of(Simulation(run))
    assert all(torch.equal(module.get_parameter(name), leaf) for name, leaf in first.items())
    whole = list(simulate(run))[-1].server
    assert whole is not None
    assert all(torch.equal(module.get_parameter(name), leaf) for name, leaf in whole.params.items())


class Turned(torch.nn.Module):
    """Features in directions that belong to a seed and are nobody's parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.linear = torch.randn(64, 16), torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear((x.flatten(1) @ self.turn.to(x)).tanh())


@pytest.mark.parametrize("model", ["mlp:hidden=16,head=etf", Turned])
@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_seeds_whose_modules_keep_other_tensors_do_not_train_together(engine: str, model: Any) -> None:
    runs = [Run(**FIELDS, model=model, engine=engine, seed=seed) for seed in (0, 1)]
    together = dict(simulate_many(runs))
    for position, run in enumerate(runs):
        *_, alone = simulate(run)
        assert together[position].accuracy == alone.accuracy
        assert_trees_close(together[position].server.params, alone.server.params)


def test_a_model_with_nothing_to_train_is_refused(mine: Path) -> None:
    with pytest.raises(ValueError, match="Sequential has no parameter to train"):
        Simulation(Run(**FIELDS, model=f"{mine}:nothing"))
