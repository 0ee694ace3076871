"""Cohorts in fixed memory: what a step leaves alone, when memory is used again, and when steps are captured at all."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.core import tree
from fedskew.core.federation import Cohort
from fedskew.core.settings import Settings
from fedskew.engine import Stacked
from fedskew.engine.captured import Lanes, plan, prefixes
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
    """A cohort in its lanes, and how many steps the client in each of them takes."""
    everyone, settings = [cohort(sim, [0, 1, 2, 3])], Settings(1, sim.run.batch_size)
    table, data = client_table(everyone, [0], 1, settings), sim.federation.dataset
    made = Lanes(settings, sim.recipe(1), [sim.server], everyone, (data, data.x_train, data.y_train), table)
    made._copy_in(sim.recipe(1), [sim.server], everyone, table)
    return made, sorted(table.steps.tolist(), reverse=True)


@pytest.mark.parametrize("algorithm", ["fedlc:missing=mask", "fedprox:mu=0.1", "scaffold"])
def test_a_client_that_has_finished_is_left_alone_to_the_bit(algorithm: str) -> None:
    made, steps = lanes(simulation(model="cnn:padding=1,width=4", algorithm=algorithm))
    assert len(set(steps)) > 1
    for step in range(max(steps) + 2):
        before = [leaf.clone() for leaf in leaves(made.local)]
        made._step(4)
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
        seen.append(sim.engine._rounds.lanes)
    assert seen[0] is seen[1] is seen[2] is seen[3]
    (update,) = sim.engine.train(sim.recipe(5), [sim.server], [cohort(sim, [0, 1, 2, 3])], 5)
    assert sim.engine._rounds.lanes is not seen[0]
    assert len(update.loss) == 4


def test_updates_outlive_the_next_round() -> None:
    sim = simulation(model="cnn:padding=1,width=4", algorithm="scaffold")
    (update,) = sim.engine.train(sim.recipe(1), [sim.server], [cohort(sim, [0, 1])], 1)
    kept = [leaf.clone() for leaf in leaves(update)]
    sim.engine.train(sim.recipe(2), [sim.server], [cohort(sim, [2, 3])], 2)
    assert all(torch.equal(a, b) for a, b in zip(kept, leaves(update), strict=True))


def test_a_step_of_fewer_lanes_leaves_the_others_alone_to_the_bit() -> None:
    made, steps = lanes(simulation(model="cnn:padding=1,width=4", algorithm="scaffold"))
    assert made.sheet.tensors["steps"].tolist() == steps
    before = [leaf.clone() for leaf in leaves(made.local)]
    made._step(2)
    for lane in range(4):
        same = [torch.equal(a[lane], b[lane]) for a, b in zip(before, leaves(made.local), strict=True)]
        assert all(same) == (lane >= 2)


def test_graphs_of_fewer_and_fewer_clients() -> None:
    assert prefixes(20) == [20, 15, 11, 8, 6, 4, 3, 2, 1]
    assert prefixes(1) == [1]


@pytest.mark.parametrize(
    ("steps", "lanes", "sizes"),
    [([3, 3, 3], 3, [3, 3, 3]), ([1, 5, 2, 2], 4, [4, 3, 1, 1, 1]), ([2, 1], 20, [2, 1]), ([7], 1, [1] * 7)],
)
def test_each_step_takes_the_smallest_graph_that_has_all_clients_at_work(
    steps: list[int], lanes: int, sizes: list[int]
) -> None:
    assert plan(np.array(steps), lanes) == sizes


@pytest.mark.parametrize("algorithm", ["fedlc", "scaffold"])
def test_the_updates_of_ranked_clients_are_in_the_order_of_the_cohort(algorithm: str) -> None:
    """Clients of different sizes in any order, and several seeds together."""
    sims = [simulation(model="cnn:padding=1,width=4", algorithm=algorithm, seed=seed) for seed in (0, 1)]
    cohorts = [cohort(sims[0], [2, 0, 3]), cohort(sims[1], [1, 3, 0, 2])]
    servers, recipe = [sim.server for sim in sims], sims[0].recipe(1)
    together = sims[0].engine.train(recipe, servers, cohorts, 1)
    for server, one, update in zip(servers, cohorts, together, strict=True):
        for place, client in enumerate(one.clients.tolist()):
            single = Cohort(
                one.federation, np.array([client]), tree.rows(one.states, slice(place, place + 1)), one.seed
            )
            (alone,) = Stacked(Settings(1, 16), captured=False).train(recipe, [server], [single], 1)
            for part in ("delta", "buffers", "client"):
                own = tree.rows(getattr(update, part), slice(place, place + 1))
                assert_trees_close(own, getattr(alone, part), rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(update.loss[place], alone.loss[0], rtol=1e-4, atol=1e-5)


def test_a_round_makes_only_the_graphs_that_it_needs() -> None:
    sim = simulation(model="mlp")
    assert isinstance(sim.engine, Stacked)
    sim.engine.train(sim.recipe(1), [sim.server], [cohort(sim, [0, 1, 2, 3])], 1)
    assert sim.engine._rounds.lanes is not None
    steps = client_table([cohort(sim, [0, 1, 2, 3])], [0], 1, sim.engine.settings).steps
    assert set(sim.engine._rounds.lanes.steps) == set(plan(steps, 4))


def with_room_for(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out where more lanes than this play."""
    play = Lanes.play

    def short_of_memory(lanes: Lanes, *given: Any) -> Any:
        if lanes.lanes > most:
            raise torch.OutOfMemoryError
        return play(lanes, *given)

    monkeypatch.setattr(Lanes, "play", short_of_memory)


@pytest.mark.parametrize("together", [1, 2])
def test_clients_train_in_groups_where_memory_runs_out(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sims = [simulation(model="mlp", algorithm="scaffold", seed=seed) for seed in range(together)]
    cohorts, servers = [cohort(sim, [3, 0, 2]) for sim in sims], [sim.server for sim in sims]
    expected = sims[0].engine.train(sims[0].recipe(1), servers, cohorts, 1)
    with_room_for(2, monkeypatch)
    engine = Stacked(Settings(1, 16), captured=True)
    with pytest.warns(UserWarning, match="memory ran out") as warned:
        made = engine.train(sims[0].recipe(1), servers, cohorts, 1)
    said = ["one seed after another", "clients in 2 groups"][2 - together :]
    assert [str(each.message) for each in warned] == [f"memory ran out; continuing with {how}" for how in said]
    for update, other in zip(made, expected, strict=True):
        for part in ("delta", "client", "message"):
            assert_trees_close(getattr(update, part), getattr(other, part), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(update.loss, other.loss)
    assert engine._rounds.groups == 2
    monkeypatch.setattr(Lanes, "play", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(RuntimeError, match="round 2"), pytest.warns(UserWarning, match="in 4 groups"):
        engine.train(sims[0].recipe(2), servers, cohorts, 2)


def test_one_seed_after_another_is_tried_before_its_clients_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    sims = [simulation(model="mlp", seed=seed) for seed in range(2)]
    cohorts = [cohort(sim, [1]) for sim in sims]
    with_room_for(1, monkeypatch)
    engine = Stacked(Settings(1, 16), captured=True)
    with pytest.warns(UserWarning, match="one seed after another"):
        engine.train(sims[0].recipe(1), [sim.server for sim in sims], cohorts, 1)
    assert engine._rounds.groups == 1


@pytest.mark.parametrize("change", [{"momentum": 0.5}, {"grad_clip": 0.1}, {"weight_decay": 0.1}], ids=str)
def test_lanes_are_made_anew_for_another_step_and_kept_for_another_rate(change: dict[str, float]) -> None:
    sim = simulation(model="mlp", lr_schedule="exponential:0.5")
    other = simulation(model="mlp", lr_schedule="exponential:0.5", **change).recipe(3)
    engine, given = Stacked(Settings(1, 16), captured=True), ([sim.server], [cohort(sim, [0, 1])])
    engine.train(sim.recipe(1), *given, 1)
    first = engine._rounds.lanes
    engine.train(sim.recipe(2), *given, 2)
    assert engine._rounds.lanes is first
    recipe = replace(sim.recipe(3), optimizer=other.optimizer, grad_clip=other.grad_clip)
    engine.train(recipe, *given, 3)
    assert engine._rounds.lanes is not first


def test_on_a_cpu_steps_are_not_captured() -> None:
    sim = simulation(model="mlp")
    sim.engine = Stacked(Settings(1, 16))
    sim.engine.train(sim.recipe(1), [sim.server], [cohort(sim, [0, 1])], 1)
    assert sim.engine._rounds.lanes is None


def test_a_sheet_brings_arrays_over_and_clears_what_is_behind_them() -> None:
    sheet = Sheet({"a": (3,), "b": (2, 2), "none": (0, 4)}, torch.device("cpu"))
    sheet.write(a=np.array([1, 2, 3]), b=np.array([[4, 5], [6, 7]]))
    sheet.write(a=np.array([8]), b=np.array([[9, 10]]))
    assert sheet.tensors["a"].tolist() == [8, 0, 0]
    assert sheet.tensors["b"].tolist() == [[9, 10], [0, 0]]
    assert sheet.tensors["none"].shape == (0, 4)
