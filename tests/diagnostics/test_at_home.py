import json

import numpy as np
import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.diagnostics import diagnose
from fedskew.diagnostics.at_home import alone, own_mix
from fedskew.diagnostics.observing import from_folder, observe
from fedskew.losses.counts import log_prior
from fedskew.simulation.simulation import Simulation, advance

RUN = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 4, "lr": 0.1, "batch_size": 16}


def test_classes_count_as_the_client_holds_them():
    assert own_mix([0.9, 0.5, 0.1], [1, 3, 0]) == pytest.approx(0.6)
    assert own_mix([0.9, None, 0.1], [1, 3, 1]) == pytest.approx(0.5)  # nothing tests the second class
    assert own_mix([None, 0.5], [4, 0]) is None


def test_with_balanced_counts_it_is_the_accuracy():
    assert own_mix([0.9, 0.5, 0.1], [7, 7, 7]) == pytest.approx(0.5)


def test_a_model_at_its_clients(tmp_path):
    run = Run(**RUN, rounds=4)
    list(simulate(run, store=(store := Store(tmp_path))))
    document = diagnose(store.folder(run.hash), client_limit=3, by_themselves=True)
    found, effect = document["at_home"], document["methods"]["fedavg"]["class_accuracy"]
    assert found["clients"] == [client["client"] for client in effect["clients"]] == [0, 1, 2]
    assert not found["own_tests"]
    assert list(found["after"]) == list(document["methods"])
    for k, client in enumerate(effect["clients"]):
        share = [n / sum(client["counts"]) for n in client["counts"]]
        for values, by_class in ((found["global"], effect["before"]), (found["after"]["fedavg"], client["after"])):
            assert values[k] == pytest.approx(sum(a * b for a, b in zip(share, by_class, strict=True)), abs=1e-5)
    for each in (found["global"], found["prior"], found["relative"], found["alone"]):
        assert len(each) == 3
        assert all(0 <= value <= 1 for value in each)
    assert sum(found["prior"]) > sum(found["global"])


def test_own_test_examples_are_what_a_client_meets(tmp_path):
    """Two clients call the same inputs by opposite names: a model of one is always wrong about the other."""
    x = np.repeat(np.array([[-1.0, 0], [1, 0]], dtype=np.float32), 20, axis=0)
    y, whose = np.repeat([0, 1], 20), np.repeat([0, 1], 40)
    both = {"x_train": np.concatenate([x, x]), "y_train": np.concatenate([y, 1 - y]), "client_train": whose}
    own = {"x_test": x, "y_test": y, "client_test": np.zeros(40, int)}
    np.savez(tmp_path / "own.npz", **both, **own)
    about = {"dataset": f"npz:{tmp_path / 'own.npz'}", "partition": "natural", "clients": 2, "model": "logistic"}
    run = Run(**about, rounds=3, lr=1.0, batch_size=8)
    list(simulate(run, store=(store := Store(tmp_path / "runs"))))
    found = diagnose(store.folder(run.hash), by_themselves=True)["at_home"]
    assert found["own_tests"]
    assert found["alone"] == found["after"]["fedavg"] == [1.0, None], "the second client has no test example"


def test_some_clients_with_tests_of_their_own_and_a_fitted_last_layer(tmp_path):
    about = {"dataset": "synthetic:1,1,max_size=300", "clients": 5, "algorithm": "refit"}
    run = Run(**about, rounds=2, lr=0.05, batch_size=20)
    list(simulate(run, store=(store := Store(tmp_path))))
    folder, reported = store.folder(run.hash), range(3)
    simulation, found = from_folder(folder), diagnose(folder, client_limit=3)["at_home"]
    data, counts = simulation.federation.dataset, torch.from_numpy(simulation.federation.counts(np.arange(5)))

    def right(params, k, prior=0):
        logits = data.x_test @ params["linear.weight"].T + params["linear.bias"] + prior
        mine = data.client_test == k
        return (logits.argmax(-1) == data.y_test)[mine].double().mean().item()

    used, everybody = simulation.server.used, counts.sum(0)
    expected = {
        "global": [right(used, k) for k in reported],
        "prior": [right(used, k, log_prior(counts[k])) for k in reported],
        "relative": [right(used, k, log_prior(counts[k], everybody)) for k in reported],
    }
    for name in found["after"]:
        seen = observe(simulation, algorithm=name)
        local = [{at: leaf + seen.update.delta[at][k] for at, leaf in seen.before.params.items()} for k in reported]
        expected[name] = [right(params, k) for k, params in enumerate(local)]
    for name, values in expected.items():
        assert {**found, **found["after"]}[name] == pytest.approx(values, abs=1e-5), name


def test_tests_of_clients_that_a_split_has_mixed_are_nobodys(tmp_path):
    g = np.random.default_rng(0)
    x, y = g.normal(size=(60, 2)).astype(np.float32), np.arange(60) % 3
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, client=y % 2, client_test=y % 2)
    about = {"dataset": f"npz:{tmp_path / 'own.npz'}", "partition": "iid", "clients": 2, "model": "logistic"}
    list(simulate(run := Run(**about, rounds=1), store=(store := Store(tmp_path / "runs"))))
    assert not diagnose(store.folder(run.hash))["at_home"]["own_tests"]


def test_relative_counts_undo_what_is_frequent_overall(tmp_path):
    """Every client holds what all hold together: then log n - log N is the same for all classes, and log n is not."""
    g = np.random.default_rng(0)
    y = np.repeat([0, 1], [180, 20])
    x = (g.normal(size=(200, 1)) + 2 * y[:, None]).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, client=np.arange(200) % 2)
    about = {"dataset": f"npz:{tmp_path / 'own.npz'}", "partition": "natural", "clients": 2, "model": "logistic"}
    run = Run(**about, rounds=20, lr=0.5, batch_size=20)
    list(simulate(run, store=(store := Store(tmp_path / "runs"))))
    found = diagnose(store.folder(run.hash))["at_home"]
    assert found["relative"] == found["global"] != found["prior"]


@pytest.mark.parametrize(
    "how", [{}, {"momentum": 0.9, "lr_schedule": "cosine"}, {"optimizer": "adam"}, {"algorithm": "fedlc+scaffold"}]
)
def test_alone_is_a_federation_of_one(how, tmp_path):
    """In steps over all of a client's examples, so that their order does not matter."""
    fields = {**RUN, "batch_size": 2000, "lr": 0.02, **how}
    simulation = Simulation(Run(**fields, rounds=3))
    for _ in range(3):
        advance([simulation])
    seen = observe(simulation)
    split = tmp_path / "split.json"
    for k, found in enumerate(alone(simulation, seen, 2)):
        split.write_text(json.dumps([simulation.federation.indices[k].tolist()]))
        one = {**fields, "clients": 1, "partition": f"replay:{split}", "algorithm": "fedavg"}
        *_, last = simulate(Run(**one, rounds=3))
        counts = simulation.federation.counts(np.array([k]))[0].tolist()
        assert found == pytest.approx(own_mix(last.per_class_accuracy, counts), abs=1e-5)
    assert simulation.round == 3


def test_a_client_that_diverges_alone_has_no_accuracy():
    simulation = Simulation(Run(**{**RUN, "lr": 1e30}, rounds=3))
    seen = observe(simulation)
    simulation.round = 3
    assert alone(simulation, seen, None) == [None] * 4


def test_groups_that_train_alone_do_not_change_what_a_client_gets(monkeypatch):
    simulation = Simulation(Run(**RUN, rounds=2))
    advance([simulation])
    advance([simulation])
    seen = observe(simulation)
    together = alone(simulation, seen, None)
    monkeypatch.setattr("fedskew.diagnostics.observing._TOGETHER", 3)
    assert alone(simulation, seen, None) == pytest.approx(together, abs=1e-5)
