"""The schedule of a cohort against batches cut client by client."""

import numpy as np
import pytest
import torch

from fedskew.core.dataset import Dataset
from fedskew.core.federation import Cohort, Federation
from fedskew.engine import Settings
from fedskew.engine.timetable import Tables, client_table, schedule

SIZES = [5, 16, 1, 9, 8]


def federation(sizes: list[int]) -> Federation:
    total = sum(sizes)
    data = Dataset("toy", torch.zeros(total, 1), torch.zeros(total).long(), torch.zeros(1, 1), torch.zeros(1).long(), 2)
    shuffled = torch.from_numpy(np.random.default_rng(1).permutation(total))
    return Federation.split(data, list(shuffled.split(sizes)))


def cohort(clients: list[int], sizes: list[int] = SIZES, seed: int = 4) -> Cohort:
    return Cohort(federation(sizes), np.array(clients), {}, seed)


def batches(one: Cohort, client: int, round: int, epochs: int, batch_size: int) -> list[list[int]]:
    order = one.federation.shuffled(np.array([client]), one.seed, round, epochs).reshape(epochs, -1)
    return [epoch[start : start + batch_size].tolist() for epoch in order for start in range(0, len(epoch), batch_size)]


@pytest.mark.parametrize("batch_size", [1, 4, 8, 100])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("clients", [[0, 1, 2, 3, 4], [3, 1], [2], [4, 0, 2]], ids=str)
def test_every_client_meets_its_own_batches(clients: list[int], epochs: int, batch_size: int) -> None:
    one = cohort(clients)
    plan = schedule([one], [0], 7, Settings(epochs, batch_size))
    expected = {k: batches(one, client, 7, epochs, batch_size) for k, client in enumerate(clients)}
    assert sorted(plan.rank.tolist()) == list(range(len(clients)))
    assert plan.steps.tolist() == [len(expected[k]) for k in plan.rank.tolist()]
    assert plan.steps.tolist() == sorted(plan.steps.tolist(), reverse=True)
    row = 0
    for step, active in enumerate(plan.active.tolist()):
        for place in range(active):
            own = expected[int(plan.rank[place])][step]
            mask, index = plan.mask[row + place], plan.index[row + place]
            assert index[mask].tolist() == own
            assert mask.tolist() == sorted(mask.tolist(), reverse=True)  # padding comes last
            assert set(index[~mask].tolist()) <= set(own)  # with labels that the client has
        assert plan.full[step] == plan.mask[row : row + active].all()
        row += active
    assert row == len(plan.index)
    assert plan.active.sum() == plan.steps.sum()


def test_several_cohorts_with_their_offsets() -> None:
    first, second = cohort([0, 3], seed=1), cohort([1, 2], [4, 7, 2], seed=2)
    plan = schedule([first, second], [0, 100], 3, Settings(2, 4))
    seen = {k: [] for k in range(4)}  # type: dict[int, list[int]]
    row = 0
    for active in plan.active.tolist():
        for place in range(active):
            seen[int(plan.rank[place])] += plan.index[row + place][plan.mask[row + place]].tolist()
        row += active
    for k, (one, client, offset) in enumerate([(first, 0, 0), (first, 3, 0), (second, 1, 100), (second, 2, 100)]):
        order = one.federation.shuffled(np.array([client]), one.seed, 3, 2)
        assert seen[k] == (order + offset).tolist()


def test_nobody_who_has_finished_takes_a_step() -> None:
    plan = schedule([cohort([0, 1, 2, 3, 4])], [0], 1, Settings(1, 4))
    assert plan.active.tolist() == [5, 4, 2, 1]  # 2, 4, 1, 3 and 2 steps


def test_the_table_of_the_next_round_is_made_ahead_if_its_clients_are_certain() -> None:
    one, tables = cohort([0, 1, 2, 3, 4]), Tables(Settings(1, 4))
    first = tables([one], [0], 1)
    assert tables([one], [0], 1) is first
    tables.prepare([one], [0], 2)
    ahead = tables([one], [0], 2)
    assert np.array_equal(ahead.index, client_table([one], [0], 2, tables.settings).index)
    some = cohort([3, 1])
    drawn = tables([some], [0], 3)
    tables.prepare([some], [0], 4)  # two of five clients: who is next is not known
    assert tables([some], [0], 3) is drawn
