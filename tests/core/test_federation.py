"""Who holds what, in which order it is used."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedskew.core.dataset import Dataset
from fedskew.core.federation import Federation

LABELS = torch.tensor([0, 2, 1, 0, 2, 2, 1, 0, 0, 2])
INDICES = [torch.tensor([0, 3, 7]), torch.tensor([9]), torch.tensor([1, 2, 4, 5, 6, 8])]


def dataset(owners: Tensor | None = None) -> Dataset:
    x = torch.arange(10.0)[:, None]
    return Dataset("toy", x, LABELS, x, LABELS, 4, client_train=owners)


@pytest.fixture
def federation() -> Federation:
    return Federation.split(dataset(), INDICES)


def test_split(federation: Federation) -> None:
    assert federation.num_clients == 3
    assert federation.sizes(np.arange(3)).tolist() == [3, 1, 6]
    assert federation.sizes(np.array([2, 0])).tolist() == [6, 3]
    assert [part.tolist() for part in federation.indices] == [part.tolist() for part in INDICES]


def test_counts_are_of_the_training_labels(federation: Federation) -> None:
    assert federation.counts(np.arange(3)).tolist() == [[3, 0, 0, 0], [0, 0, 1, 0], [1, 2, 3, 0]]
    assert federation.counts(np.array([2, 0])).tolist() == [[1, 2, 3, 0], [3, 0, 0, 0]]


def test_natural_groups_by_owner() -> None:
    federation = Federation.natural(dataset(torch.tensor([1, 0, 0, 2, 1, 1, 0, 2, 2, 2])))
    assert [part.tolist() for part in federation.indices] == [[1, 2, 6], [0, 4, 5], [3, 7, 8, 9]]
    assert federation.counts(np.arange(3)).sum(1).tolist() == [3, 3, 4]


def test_natural_needs_owners() -> None:
    with pytest.raises(ValueError, match=r"toy does not say which client has which example, .*; choose a partition"):
        Federation.natural(dataset())


def test_an_empty_client_is_refused() -> None:
    with pytest.raises(ValueError, match="client 1 has no training example; every client needs one"):
        Federation.split(dataset(), [INDICES[0], torch.tensor([], dtype=torch.int64), INDICES[2]])
    with pytest.raises(ValueError, match="client 1 has no training example; every client needs one"):
        Federation.natural(dataset(torch.tensor([0, 0, 0, 2, 2, 2, 0, 2, 2, 2])))


def test_positions(federation: Federation) -> None:
    assert federation.positions(np.array([2, 0])).tolist() == [4, 5, 6, 7, 8, 9, 0, 1, 2]


class TestShuffled:
    def test_every_epoch_is_all_of_the_clients_examples(self, federation: Federation) -> None:
        order = federation.shuffled(np.array([2, 0]), seed=1, round=1, epochs=3)
        assert [sorted(epoch) for epoch in order[:18].reshape(3, 6).tolist()] == [[1, 2, 4, 5, 6, 8]] * 3
        assert [sorted(epoch) for epoch in order[18:].reshape(3, 3).tolist()] == [[0, 3, 7]] * 3

    def test_epochs_rounds_and_seeds_differ(self, federation: Federation) -> None:
        def order(seed: int, round: int) -> list[list[int]]:
            epochs: list[list[int]] = federation.shuffled(np.array([2]), seed, round, 2).reshape(2, 6).tolist()
            return epochs

        drawn = [*order(1, 1), *order(1, 2), *order(2, 1)]
        assert len({tuple(epoch) for epoch in drawn}) == 6

    def test_clients_of_one_size_have_orders_of_their_own(self) -> None:
        twins = Federation.split(dataset(), [torch.arange(5), torch.arange(5, 10)])
        first, second = twins.shuffled(np.array([0, 1]), 1, 1, 1).reshape(2, 5)
        assert first.tolist() != (second - 5).tolist()

    def test_the_cohort_does_not_matter(self, federation: Federation) -> None:
        alone = {k: federation.shuffled(np.array([k]), 5, 9, 2).tolist() for k in range(3)}
        together = federation.shuffled(np.array([2, 0, 1]), 5, 9, 2).tolist()
        assert together == alone[2] + alone[0] + alone[1]

    def test_more_epochs_begin_with_the_same_ones(self, federation: Federation) -> None:
        short, long = (federation.shuffled(np.array([2]), 5, 9, epochs).tolist() for epochs in (1, 3))
        assert long[:6] == short
