"""Examples that are held out to choose settings on: no client holds them, and nothing else changes."""

import numpy as np
import pytest

from fedskew import Run, simulate
from fedskew.core import rng
from fedskew.data import load_dataset
from fedskew.simulation.plan import build_federation
from fedskew.simulation.simulation import Simulation


def test_no_client_holds_a_held_out_example_and_none_is_lost() -> None:
    federation = build_federation(Run(dataset="digits", partition="dirichlet:0.5", clients=5, validation=0.2))
    labels = federation.labels
    assert not np.intersect1d(federation.order, federation.held_out).size
    assert sorted([*federation.order, *federation.held_out]) == list(range(len(labels)))
    share = np.bincount(labels[federation.held_out]) / np.bincount(labels)
    assert np.abs(share - 0.2).max() < 0.01


def test_natural_clients_each_give_their_share() -> None:
    run = Run(dataset="synthetic:1,1", clients=8, validation=0.25)
    whole = build_federation(run.model_copy(update={"validation": 0.0}))
    left = build_federation(run)
    sizes = np.diff(whole.offsets)
    assert np.array_equal(np.diff(left.offsets), sizes - sizes // 4)
    owner = whole.dataset.client_train
    assert owner is not None
    for k in range(8):
        assert set(owner[left.order[left.offsets[k] : left.offsets[k + 1]]].tolist()) == {k}


def test_what_is_held_out_depends_on_the_seed_alone() -> None:
    data = load_dataset("digits", 0, 20, None, "cpu")
    first, again, other = (data.held_out(0.1, rng.stream(seed, "validation")) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_record_has_the_accuracy_on_them_and_the_test_set_stays_whole() -> None:
    run = Run(dataset="digits", clients=4, rounds=2, validation=0.1)
    records = list(simulate(run))
    assert all(record.validation_accuracy is not None for record in records)
    assert len(Simulation(run).federation.dataset.y_test) == len(Simulation(Run(clients=4)).federation.dataset.y_test)
    assert next(simulate(Run(dataset="digits", clients=4, rounds=1))).validation_accuracy is None


def test_runs_without_one_keep_their_hash() -> None:
    assert Run().hash == Run(validation=0.0).hash != Run(validation=0.1).hash


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_outside_zero_to_one_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="validation"):
        Run(validation=share)
