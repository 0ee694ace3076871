import json

import numpy as np
import pytest

from fedskew import Run
from fedskew.paper.trained import choose_client_and_classes, features_after
from fedskew.simulation.simulation import Simulation, advance


@pytest.fixture(scope="module")
def simulation():
    made = Simulation(Run(model="mlp", partition="dirichlet:0.1", clients=5, lr=0.1, batch_size=16, engine="serial"))
    for _ in range(3):
        advance([made])
    return made


def test_the_choice_is_nearest_to_the_printed_counts():
    counts = [[500, 500, 500, 500], [2608, 2600, 448, 0], [0, 0, 3000, 100], [2608, 0, 0, 448]]
    assert choose_client_and_classes(counts) == (1, {"majority": 0, "minority": 2, "missing": 3})
    assert choose_client_and_classes(counts[2:]) == (1, {"majority": 0, "minority": 3, "missing": 1})
    with pytest.raises(ValueError, match="no client has"):
        choose_client_and_classes([[3, 3], [4, 0]])


def test_a_map_of_the_chosen_classes(simulation):
    counts = simulation.federation.counts(np.arange(5)).tolist()
    client, classes = choose_client_and_classes(counts)
    made = features_after(simulation, client, classes, algorithm="fedlc", per_class=20)
    assert json.loads(json.dumps(made)) == made
    assert [group["kind"] for group in made["groups"]] == ["majority", "minority", "missing"]
    for group in made["groups"]:
        assert group["count"] == counts[client][group["class"]]
        assert np.array(group["points"]).shape == (20, 2)
        assert 0 <= group["neighbours"] <= 1
    again = features_after(simulation, client, classes, algorithm="fedlc", per_class=20)
    assert again == made
    assert features_after(simulation, client, classes, per_class=20)["groups"] != made["groups"]
    assert simulation.round == 3


def test_features_are_the_input_of_the_last_layer(simulation):
    client, classes = choose_client_and_classes(simulation.federation.counts(np.arange(5)).tolist())
    made = features_after(simulation, client, classes, per_class=2)
    assert made["feature_size"] == list(simulation.server.params.values())[-2].shape[1]
    assert len(made["groups"][0]["points"]) == 2


def test_a_class_without_test_examples_is_refused(simulation):
    with pytest.raises(ValueError, match="class 0 has 1 test examples"):
        features_after(simulation, 0, {"majority": 0, "minority": 1, "missing": 2}, per_class=1)
