"""A round says how much of it is done, and small steps run on one thread."""

import pytest
import torch

from fedskew import Run, simulate
from fedskew.core.pulse import listening, meter
from fedskew.core.settings import Settings, threads_for
from fedskew.simulation import Simulation


def test_nobody_needs_to_listen() -> None:
    assert meter(3)() is None


@pytest.mark.parametrize("engine", ["serial", "stacked", "threaded"])
def test_engines_tell_how_much_of_a_round_is_done(engine: str) -> None:
    heard: list[float] = []
    with listening(heard.append):
        list(simulate(Run(clients=4, rounds=2, batch_size=64, engine=engine)))
    assert sorted(set(heard))[-1] == 1
    assert heard.count(1) == 2  # once a round
    assert len(heard) > 4


@pytest.mark.parametrize(("clients", "threads"), [(1, 1), (100_000, 3)])
def test_small_steps_run_on_one_thread_and_large_ones_on_all(clients: int, threads: int) -> None:
    recipe = Simulation(Run(clients=4, rounds=1)).recipe(1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads_for(recipe, Settings(1, 16), clients):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
