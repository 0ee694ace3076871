import pytest
import torch
from torch import nn

from fedskew import Run
from fedskew.core.reading import last_layer
from fedskew.diagnostics.outputs import outputs
from fedskew.models.model import Model
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("logistic", ("linear.weight", "linear.bias")),
        ("mlp", ("linear.weight", "linear.bias")),
        ("cnn:padding=1,width=4", ("linear.weight", "linear.bias")),
        (f"{OWN}:plain", ("head.weight", "head.bias")),
        (f"{OWN}:normed", ("4.weight", "4.bias")),
    ],
)
def test_logits_are_the_classifier_of_the_features(model, names):
    simulation = Simulation(Run(clients=2, model=model, precision="fp64"))
    state, data = (simulation.server.params, simulation.server.buffers), simulation.federation.dataset
    assert last_layer(simulation.model, *state, data) == names
    made = outputs(simulation.model, state, data, data.x_test[:7])
    expected = made.features @ state[0][names[0]].T + state[0][names[1]]
    torch.testing.assert_close(made.logits, expected)
    alone, _ = simulation.model.apply(*state, data.prepare(data.x_test[:7], torch.float64), train=False)
    torch.testing.assert_close(made.features, alone.features.flatten(1))


def test_models_without_a_classifier_are_refused():
    simulation = Simulation(Run(clients=2))
    data = simulation.federation.dataset
    bare = Model(nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()))
    with pytest.raises(ValueError, match="has no linear layer"):
        last_layer(bare, *bare.init(torch.float32, "cpu"), data)
    narrow = Model(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Unflatten(1, (5, 1)), nn.Conv1d(5, 10, 1)))
    wide = Model(nn.Sequential(*narrow.module, nn.Flatten()))
    with pytest.raises(ValueError, match="one row for each class"):
        last_layer(wide, *wide.init(torch.float32, "cpu"), data)
