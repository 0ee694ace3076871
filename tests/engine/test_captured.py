"""Cohorts in fixed memory: what a step leaves alone, when memory is used again, and when steps are captured at all."""

from typing import Any

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.core.federation import Cohort
from fedskew.core.settings import Settings
from fedskew.engine import Stacked
from fedskew.engine.captured import Lanes, worth_capturing
from fedskew.engine.fixed import leaves
from fedskew.engine.sheet import Sheet
from fedskew.engine.timetable import client_table
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_close

FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "batch_size": 16,
    "momentum": 0.9,
    "engine": "stacked",
}


def simulation(**extra: Any) -> Simulation:
    made = Simulation(Run(**{**FIELDS, **extra}))
    made.engine = Stacked(Settings(1, made.run.batch_size, made.run.precision), captured=True)
    return made


def cohort(sim: Simulation, clients: list[int]) -> Cohort:
    return Cohort(sim.federation, np.array(clients), sim.states.gather(np.array(clients)), sim.run.seed)


def lanes(sim: Simulation) -> tuple[Lanes, list[int]]:
    everyone, settings = [cohort(sim, [0, 1, 2, 3])], Settings(1, sim.run.batch_size)
    table, data = client_table(everyone, [0], 1, settings), sim.federation.dataset
    made = Lanes(settings, sim.recipe(1), [sim.server], everyone, (data, data.x_train, data.y_train), table)
    made._copy_in(sim.recipe(1), [sim.server], everyone, [slice(0, 4)], table)
    return made, table.steps.tolist()


@pytest.mark.parametrize("algorithm", ["fedlc:missing=mask", "fedprox:mu=0.1", "scaffold"])
def test_a_client_that_has_finished_is_left_alone_to_the_bit(algorithm: str) -> None:
    made, steps = lanes(simulation(model="cnn:padding=1,width=4", algorithm=algorithm))
    assert len(set(steps)) > 1
    for step in range(max(steps) + 2):
        before = [leaf.clone() for leaf in leaves(made.local)]
        made.step()
        for client, own in enumerate(steps):
            same = [torch.equal(a[client], b[client]) for a, b in zip(before, leaves(made.local), strict=True)]
            assert all(same) == (step >= own)


def test_memory_is_used_again_by_smaller_cohorts_and_other_rates() -> None:
    sim = simulation(model="mlp", lr_schedule="exponential:0.5", algorithm="scaffold")
    assert isinstance(sim.engine, Stacked)
    seen = []
    for round, clients in enumerate([[0, 1, 3], [2, 1], [3], [1, 0, 2]], 1):
        one = cohort(sim, clients)
        (update,) = sim.engine.train(sim.recipe(round), [sim.server], [one], round)
        plain = Stacked(sim.engine.settings, captured=False)
        (other,) = plain.train(sim.recipe(round), [sim.server], [one], round)
        for part in ("delta", "client", "message"):
            assert_trees_close(getattr(update, part), getattr(other, part), rtol=1e-4, atol=1e-6)
        assert update.travel.tolist() == other.travel.tolist()
        torch.testing.assert_close(update.loss, other.loss)
        seen.append(sim.engine._lanes)
    assert seen[0] is seen[1] is seen[2] is seen[3]
    (update,) = sim.engine.train(sim.recipe(5), [sim.server], [cohort(sim, [0, 1, 2, 3])], 5)
    assert sim.engine._lanes is not seen[0]
    assert len(update.loss) == 4


def test_updates_outlive_the_next_round() -> None:
    sim = simulation(model="cnn:padding=1,width=4", algorithm="scaffold")
    (update,) = sim.engine.train(sim.recipe(1), [sim.server], [cohort(sim, [0, 1])], 1)
    kept = [leaf.clone() for leaf in leaves(update)]
    sim.engine.train(sim.recipe(2), [sim.server], [cohort(sim, [2, 3])], 2)
    assert all(torch.equal(a, b) for a, b in zip(kept, leaves(update), strict=True))


def test_idle_clients_of_a_small_model_are_worth_it() -> None:
    ragged = np.array([5_000] + [10] * 99)
    assert worth_capturing(simulation(model="logistic").recipe(1), ragged)
    wide = simulation(model="mlp:hidden=10000").recipe(1)
    assert not worth_capturing(wide, ragged)
    assert worth_capturing(wide, np.full(100, 50))
    assert not worth_capturing(simulation(model=f"{OWN}:plain").recipe(1), np.array([1, 1]))


def test_on_a_cpu_steps_are_not_captured() -> None:
    sim = simulation(model="mlp")
    sim.engine = Stacked(Settings(1, 16))
    sim.engine.train(sim.recipe(1), [sim.server], [cohort(sim, [0, 1])], 1)
    assert sim.engine._lanes is None


def test_a_sheet_brings_arrays_over_and_clears_what_is_behind_them() -> None:
    sheet = Sheet({"a": (3,), "b": (2, 2), "none": (0, 4)}, torch.device("cpu"))
    sheet.write(a=np.array([1, 2, 3]), b=np.array([[4, 5], [6, 7]]))
    sheet.write(a=np.array([8]), b=np.array([[9, 10]]))
    assert sheet.tensors["a"].tolist() == [8, 0, 0]
    assert sheet.tensors["b"].tolist() == [[9, 10], [0, 0]]
    assert sheet.tensors["none"].shape == (0, 4)
