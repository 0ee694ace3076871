import functools
import json

import numpy as np
import pytest
import torch

from fedskew import Run, simulate
from fedskew.diagnostics import PROBES, features
from fedskew.diagnostics.feature_spread import embedded
from fedskew.simulation.session import simulate_many
from tests.helpers import assert_trees_equal

NAMES = {"class_accuracy", "deviation", "margins", "drift", "calibration", "features"}
QUICK = [*(probe for probe in PROBES if probe is not features), functools.partial(features, per_class=5)]
RUN = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 4, "lr": 0.1, "batch_size": 16, "rounds": 3}


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "serial", "model": "mlp"},
        {"engine": "stacked", "algorithm": "scaffold", "clients_per_round": 3},
        {"engine": "threaded", "model": "cnn:padding=1,width=4", "algorithm": "fedlc"},
        {"engine": "graphed", "algorithm": "fedlc+fedopt", "augment": "crop_flip"},
        {"engine": "stacked", "algorithm": "fedrs+fednova", "precision": "bf16"},
    ],
)
def test_training_is_the_same_to_the_bit_with_all_probes_and_without(changes):
    run = Run(**RUN, **changes)
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    watched, plain = list(simulate(run, QUICK)), list(simulate(run))
    for one, other in zip(watched, plain, strict=True):
        assert_trees_equal(one.server.params, other.server.params)
        assert_trees_equal(one.server.buffers, other.server.buffers)
        assert_trees_equal(one.server.correction, other.server.correction)
        assert (one.accuracy, one.loss, one.train_loss) == (other.accuracy, other.loss, other.train_loss)
        assert set(one.probes) == NAMES
        assert not other.probes
        json.dumps(one.as_dict(), allow_nan=False)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_seeds_that_run_together():
    runs = [Run(**RUN, seed=seed) for seed in (0, 1)]
    together = [record for _, record in simulate_many(runs, QUICK, every=3)]
    alone = [list(simulate(run, QUICK, every=3))[-1] for run in runs]
    assert [bool(record.probes) for record in together] == [False] * 4 + [True] * 2
    for one, other in zip(together[-2:], alone, strict=True):
        assert one.probes["class_accuracy"]["clients"] == other.probes["class_accuracy"]["clients"]


def test_a_round_without_answers_has_calibration_alone():
    records = list(simulate(Run(**RUN, dropout_rate=0.99), QUICK))
    (silent, *_) = [record for record in records if record.clients == 0]
    assert {name for name, value in silent.probes.items() if value is not None} == {"calibration"}


def test_a_diverging_run_ends_as_it_would_without_probes():
    records = list(simulate(Run(**{**RUN, "lr": 1e38}, momentum=0.9), QUICK))
    assert records[-1].diverged
    assert not any(records[-1].probes.values())


def test_maps_repeat():
    values = np.random.default_rng(0).normal(size=(20, 4))
    assert (embedded(values) == embedded(values)).all()
