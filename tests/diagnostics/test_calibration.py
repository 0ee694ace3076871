import pytest
import torch

from fedskew import Run
from fedskew.diagnostics.calibration_error import calibration, confusion, expected_error, reliability
from fedskew.diagnostics.observing import observe
from fedskew.simulation.simulation import Simulation
from tests.helpers import apply

SHARES = torch.tensor([[0.95, 0.05], [0.85, 0.15], [0.35, 0.65], [0.75, 0.25]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 1, 0])


def test_the_error_by_hand():
    """Bins of a half: all four are in the upper one, mean confidence 0.8, accuracy 0.75. Bins of a tenth: 0.95 right,
    0.85 wrong, 0.65 right, 0.75 right: (0.05 + 0.85 + 0.35 + 0.25) / 4 = 0.375."""
    assert expected_error(reliability(SHARES.log(), LABELS, 2)) == pytest.approx(0.05)
    curve = reliability(SHARES.log(), LABELS, 10)
    assert expected_error(curve) == pytest.approx(0.375)
    assert [row["count"] for row in curve] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert curve[0]["accuracy"] is None
    assert curve[8]["accuracy"] == 0


def test_full_confidence_is_in_the_last_bin():
    curve = reliability(torch.tensor([[1000.0, 0.0]]), torch.tensor([0]))
    assert curve[-1]["count"] == 1
    assert curve[-1]["high"] == 1
    assert expected_error(curve) == 0


def test_confusion():
    assert confusion(SHARES.log(), LABELS) == [[2, 0], [1, 1]]


def test_the_probe_looks_at_the_aggregated_model():
    seen = observe(Simulation(Run(partition="dirichlet:0.1", clients=3, lr=0.1, batch_size=16)))
    found = calibration(seen)["calibration"]
    data = seen.cohort.federation.dataset
    right = sum(row[c] for c, row in enumerate(found["confusion"]))
    logits, _ = apply(
        seen.model, seen.after.params, seen.after.buffers, data.prepare(data.x_test, torch.float32), train=False
    )
    assert right == (logits.argmax(-1) == data.y_test).sum().item()
    assert sum(row["count"] for row in found["reliability"]) == len(data.y_test)
    mean = logits.softmax(-1).amax(-1).mean().item()
    assert found["overconfidence"] == pytest.approx(mean - right / len(data.y_test), abs=1e-5)
