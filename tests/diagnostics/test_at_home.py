import json
import math

import numpy as np
import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.diagnostics import diagnose
from fedskew.diagnostics.at_home import alone, own_mix, with_prior
from fedskew.simulation.simulation import Simulation, advance

RUN = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 4, "lr": 0.1, "batch_size": 16}


def test_classes_count_as_the_client_holds_them():
    assert own_mix([0.9, 0.5, 0.1], [1, 3, 0]) == pytest.approx(0.6)
    assert own_mix([0.9, None, 0.1], [1, 3, 1]) == pytest.approx(0.5)  # nothing tests the second class
    assert own_mix([None, 0.5], [4, 0]) is None


def test_with_balanced_counts_it_is_the_accuracy():
    assert own_mix([0.9, 0.5, 0.1], [7, 7, 7]) == pytest.approx(0.5)


def test_the_prior_is_the_rule_of_bayes():
    """Two classes with means -1 and 1 and unit variance: softmax(f) with f = (-x, x) is right where they are balanced.
    Where the second has 9 of 10 examples, the best rule takes it from x = -log(9) / 2 on."""
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    logits = torch.stack([-x, x], -1)
    for label, sign in ((0, -1), (1, 1)):
        found = with_prior(logits, torch.full((801,), label), [10, 90])[label]
        right = sign * (x + math.log(9) / 2) > 0
        assert found == pytest.approx(right.double().mean().item(), abs=2 / 801)


def test_a_missing_class_counts_as_one_example():
    logits = torch.tensor([[0.0, 3.0], [0.0, 5.0]])  # log 50 = 3.9
    assert with_prior(logits, torch.tensor([1, 1]), [50, 0]) == [None, 0.5]


def test_a_model_at_its_clients(tmp_path):
    run = Run(**RUN, rounds=4)
    list(simulate(run, store=(store := Store(tmp_path))))
    document = diagnose(store.folder(run.hash), client_limit=3, by_themselves=True)
    found, effect = document["at_home"], document["methods"]["fedavg"]["class_accuracy"]
    assert found["clients"] == [client["client"] for client in effect["clients"]] == [0, 1, 2]
    assert list(found["after"]) == list(document["methods"])
    for k, client in enumerate(effect["clients"]):
        share = [n / sum(client["counts"]) for n in client["counts"]]
        for values, by_class in ((found["global"], effect["before"]), (found["after"]["fedavg"], client["after"])):
            assert values[k] == pytest.approx(sum(a * b for a, b in zip(share, by_class, strict=True)), abs=1e-5)
    for each in (found["global"], found["prior"], found["alone"]):
        assert len(each) == 3
        assert all(0 <= value <= 1 for value in each)
    assert sum(found["prior"]) > sum(found["global"])


def test_alone_is_a_federation_of_one(tmp_path):
    """In steps over all of a client's examples, so that their order does not matter, and without momentum."""
    simulation = Simulation(Run(**{**RUN, "batch_size": 2000}, rounds=3))
    for _ in range(3):
        advance([simulation])
    counts = simulation.federation.counts(np.arange(4)).tolist()
    clients = [{"client": k, "counts": counts[k]} for k in (1, 2)]
    split = tmp_path / "split.json"
    for found, client in zip(alone(simulation, clients), clients, strict=True):
        split.write_text(json.dumps([simulation.federation.indices[client["client"]].tolist()]))
        run = Run(**{**RUN, "batch_size": 2000, "clients": 1, "partition": f"replay:{split}"}, rounds=3)
        *_, last = simulate(run)
        assert found == pytest.approx(own_mix(last.per_class_accuracy, client["counts"]), abs=1e-5)
    assert simulation.round == 3
