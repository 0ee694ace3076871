import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.diagnostics.feature_spread import choose, embedded, features, own_neighbours
from fedskew.diagnostics.observing import observe
from fedskew.simulation.simulation import Simulation


def test_the_choice():
    many = [9] * 4
    assert choose([[5, 5, 5, 5], [10, 1, 2, 0], [9, 1, 0, 0]], many) == (
        1,
        {"majority": 0, "minority": 1, "missing": 3},
    )
    assert choose([[5, 5, 5, 5]], many) == (0, {"majority": 0})
    assert choose([[10, 1, 2, 0]], [9, 9, 9, 1]) == (0, {"majority": 0, "minority": 1})
    assert choose([[3]], [1]) is None


def test_neighbours_of_ones_own():
    apart = np.concatenate([np.zeros((20, 2)), np.full((20, 2), 9.0)])
    labels = np.repeat([0, 1], 20)
    assert own_neighbours(apart, labels).tolist() == [1.0] * 40
    assert own_neighbours(np.array([[0.0], [1.0]]), np.array([0, 1])).tolist() == [0.0, 0.0]


def test_maps_of_little():
    assert not embedded(np.ones((5, 3))).any()
    assert embedded(np.arange(6.0).reshape(6, 1)).shape == (6, 2)


@pytest.mark.parametrize("scale", [1.0, 1e20])
def test_the_probe(scale):
    simulation = Simulation(Run(model="mlp", partition="dirichlet:0.1", clients=4, lr=0.1, batch_size=16))
    seen = observe(simulation)
    with torch.no_grad():
        seen.before.params["hidden.0.weight"] *= scale
    found = features(seen, per_class=10)["features"]
    if scale > 1:
        assert found is None
    else:
        assert [group["kind"] for group in found["groups"]] == ["majority", "minority", "missing"]
        assert all(len(group["points"]) == 10 for group in found["groups"])
