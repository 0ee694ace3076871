import json

import pytest
import torch

from fedskew import Run
from fedskew.diagnostics.client_drift import cosines, drift, forgetting, gram, spread
from fedskew.diagnostics.observing import observe
from fedskew.diagnostics.quick_drift import mean_cosine
from fedskew.simulation.simulation import Simulation

DELTAS = {"a": torch.tensor([[3.0, 0.0], [0.0, 0.0]]), "b": torch.tensor([0.0, 4.0])}
"""Two clients: (3, 0, 0) and (0, 0, 4)."""


def test_by_hand():
    products = gram(DELTAS)
    assert products.tolist() == [[9.0, 0.0], [0.0, 16.0]]
    assert cosines(products).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    found = spread(products, torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert found["norm"] == [3, 4]
    assert found["mean_norm"] == 2.5
    assert found["cosine_to_mean"] == [0.6, 0.8]
    assert found["cosine"] == {"mean": 0, "min": 0, "max": 0}
    assert found["diversity"] == 2
    weighted = spread(products, torch.tensor([0.8, 0.2], dtype=torch.float64))
    assert weighted["diversity"] == pytest.approx((0.8 * 9 + 0.2 * 16) / (2.4**2 + 0.8**2), rel=1e-5)


def test_the_same_update_everywhere_has_diversity_one():
    found = spread(gram({"w": torch.ones(3, 4)}), torch.full((3,), 1 / 3, dtype=torch.float64))
    assert found["diversity"] == pytest.approx(1)
    assert found["cosine"]["min"] == pytest.approx(1)


def test_one_client_and_no_movement():
    one = torch.ones(1, dtype=torch.float64)
    assert spread(gram({"w": torch.ones(1, 2)}), one)["cosine"] == {"mean": None, "min": None, "max": None}
    assert spread(gram({"w": torch.zeros(1, 2)}), one)["diversity"] is None


def test_a_client_that_did_not_move_is_in_no_cosine_of_either_probe():
    deltas = {"w": torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [1.0, 1.0]])}
    found = spread(gram(deltas), torch.full((4,), 0.25, dtype=torch.float64))
    assert found["cosine"]["mean"] == pytest.approx(mean_cosine(deltas), rel=1e-5)
    assert found["cosine"]["max"] == 1
    assert found["cosine_to_mean"][1] is None


def test_forgetting():
    assert forgetting([[0.5, None], None, [0.9, 0.2], [0.6, 0.4]]) == [pytest.approx(0.3), 0.0]
    assert forgetting([[0.5, None], [0.4, None]]) == [pytest.approx(0.1), None]
    assert forgetting([[0.5]]) == []


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_probe(weighting):
    simulation = Simulation(Run(partition="dirichlet:0.1", clients=4, lr=0.1, batch_size=16, weighting=weighting))
    seen = observe(simulation)
    found = drift(seen)["drift"]
    assert json.loads(json.dumps(found)) == found
    moved = {name: seen.after.params[name] - seen.before.params[name] for name in seen.before.params}
    norm = torch.cat([leaf.flatten() for leaf in moved.values()]).norm().item()
    assert found["mean_norm"] == pytest.approx(norm, rel=1e-3)
    rows = found["classifier"]
    assert rows["after"]["norm"] == pytest.approx(seen.after.params["linear.weight"].norm(dim=1).tolist(), rel=1e-4)
    assert rows["after"]["bias"] == pytest.approx(seen.after.params["linear.bias"].tolist(), rel=1e-4, abs=1e-6)
    assert (len(rows["client_norm"]), len(rows["client_norm"][0])) == (4, 10)
    assert rows["groups"]["bias"]["majority"] > 0 > rows["groups"]["bias"]["missing"]


def test_a_classifier_without_biases(tmp_path):
    (tmp_path / "net.py").write_text(
        "import math\nfrom torch import nn\ndef net(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes, bias=False))\n"
    )
    run = Run(partition="dirichlet:0.1", clients=3, model=f"{tmp_path / 'net.py'}:net")
    found = drift(observe(Simulation(run)))["drift"]["classifier"]
    assert found["before"]["bias"] is None
    assert found["groups"]["bias"] is None
