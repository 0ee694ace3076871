import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.diagnostics.quick_drift import drift_measures, mean_cosine

RUN = Run(dataset="synthetic:1,1,max_size=60", clients=5, rounds=4, algorithm="fedlc+scaffold", batch_size=16)


def test_the_mean_cosine_is_that_of_all_pairs(generator):
    deltas = {
        "w": torch.randn(4, 3, 2, generator=generator, dtype=torch.float64),
        "b": torch.randn(4, generator=generator, dtype=torch.float64),
    }
    rows = torch.cat([deltas["w"].flatten(1), deltas["b"][:, None]], 1)
    units = rows / rows.norm(dim=1, keepdim=True)
    pairs = [float(units[j] @ units[k]) for j in range(4) for k in range(4) if j != k]
    assert mean_cosine(deltas) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_clients_that_did_not_move_have_no_direction():
    deltas = {"w": torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])}
    assert mean_cosine(deltas) == pytest.approx(1)
    assert mean_cosine({"w": torch.zeros(3, 2)}) is None


@pytest.mark.parametrize("others", [0, 3])
def test_one_client_that_moved_has_nobody_to_compare_with(others):
    """However the length of its unit vector is rounded: 49 * (1 / 49) is not 1 in float64, on any machine."""
    assert 49.0 * (1 / 49.0) != 1
    for length in (1.0, 49.0):
        assert mean_cosine({"w": torch.tensor([[length], *[[0.0]] * others], dtype=torch.float64)}) is None


@pytest.mark.parametrize("size", [1e25, float("inf"), float("nan")])
def test_deltas_without_a_finite_length_have_no_cosine(size):
    """The square of 1e25 is beyond float32: no unit vector, and no cosine of -1 from two vectors of length 0."""
    assert mean_cosine({"w": torch.tensor([[size, size], [1.0, 0.0], [size, 0.0]])}) is None


def test_fedavgs_step_is_the_mean_delta():
    run = RUN.model_copy(update={"algorithm": "fedavg"})
    before = None
    for record in simulate(run, [drift_measures]):
        after = torch.cat([leaf.flatten() for leaf in record.server.params.values()])
        if before is not None:
            assert record.probes["drift_norm"] == pytest.approx(float((after - before).norm()), rel=1e-3)
        assert -1 <= record.probes["drift_cosine"] <= 1
        before = after


def test_training_is_the_same_to_the_bit_with_the_probe():
    plain, probed = list(simulate(RUN)), list(simulate(RUN, [drift_measures]))
    for one, other in zip(plain, probed, strict=True):
        assert (one.accuracy, one.loss, one.train_loss) == (other.accuracy, other.loss, other.train_loss)
        assert all(torch.equal(leaf, other.server.params[name]) for name, leaf in one.server.params.items())
        assert all(torch.equal(leaf, other.server.correction[name]) for name, leaf in one.server.correction.items())


def test_a_round_without_answers_has_no_drift(tmp_path):
    run = RUN.model_copy(update={"dropout_rate": 0.95, "rounds": 8})
    records = list(simulate(run, [drift_measures], store=Store(tmp_path)))
    silent = [record for record in records if not record.clients]
    assert silent
    assert all(record.probes == {"drift_norm": None, "drift_cosine": None} for record in silent)
