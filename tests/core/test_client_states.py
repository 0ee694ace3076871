"""States are remembered for those who were seen and are the first state for everybody else."""

import numpy as np
import torch

from fedskew.core.client_states import ClientStates
from tests.helpers import assert_trees_equal, normal


def test_unseen_clients_have_the_first_state() -> None:
    states = ClientStates({"c": torch.tensor([1.0, 2.0])})
    assert states.gather(np.array([5, 0]))["c"].tolist() == [[1.0, 2.0], [1.0, 2.0]]


def test_put_and_gather_in_any_order(generator: torch.Generator) -> None:
    states = ClientStates({"c": torch.full((3,), -1.0, dtype=torch.float64)})
    given = {"c": normal(generator, 4, 3)}
    states.put(np.array([7, 2, 1000, 0]), given)
    assert torch.equal(states.gather(np.array([1000, 7]))["c"], given["c"][[2, 0]])
    assert states.gather(np.array([1]))["c"].tolist() == [[-1.0, -1.0, -1.0]]


def test_a_later_state_replaces_the_earlier_one(generator: torch.Generator) -> None:
    states = ClientStates({"c": torch.zeros(3, dtype=torch.float64)})
    first, second = {"c": normal(generator, 2, 3)}, {"c": normal(generator, 2, 3)}
    states.put(np.array([4, 5]), first)
    states.put(np.array([5, 6]), second)
    assert torch.equal(states.gather(np.array([4, 5, 6]))["c"], torch.stack([first["c"][0], *second["c"]]))


def test_many_clients_one_after_another() -> None:
    """The rows grow; nobody loses a state on the way."""
    states = ClientStates({"c": torch.zeros(1, dtype=torch.int64), "d": torch.zeros(2)})
    order = np.random.default_rng(0).permutation(100)
    for client in order:
        states.put(np.array([client]), {"c": torch.tensor([[client]]), "d": torch.full((1, 2), float(client))})
    everyone = states.gather(np.arange(120))
    assert everyone["c"].flatten().tolist() == [*range(100), *[0] * 20]
    assert everyone["d"][99].tolist() == [99.0, 99.0]


def test_what_is_gathered_and_given_is_a_copy() -> None:
    initial = {"c": torch.zeros(2)}
    states = ClientStates(initial)
    states.gather(np.array([0]))["c"].add_(1)
    given = {"c": torch.ones(1, 2)}
    states.put(np.array([3]), given)
    given["c"].add_(1)
    initial["c"].add_(1)
    assert states.gather(np.array([0, 3]))["c"].tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_dump_and_put_give_the_same_states(generator: torch.Generator) -> None:
    states = ClientStates({"c": torch.zeros(3, dtype=torch.float64)})
    states.put(np.array([9, 2]), {"c": normal(generator, 2, 3)})
    clients, rows = states.dump()
    again = ClientStates({"c": torch.zeros(3, dtype=torch.float64)})
    again.put(clients.numpy(), rows)
    assert clients.tolist() == [9, 2]
    assert_trees_equal(again.gather(np.arange(10)), states.gather(np.arange(10)))


def test_corrections_without_a_state() -> None:
    states = ClientStates({})
    assert states.gather(np.array([1, 2])) == {}
    states.put(np.array([1]), {})
    clients, rows = states.dump()
    assert clients.tolist() == []
    assert rows == {}
