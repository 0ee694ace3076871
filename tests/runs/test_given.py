"""Objects of Python as fields of a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedskew import Algorithm, Run, Store, combine, fedavg, fedlc, fedopt, scaffold, simulate
from fedskew.algorithms import ALGORITHMS
from fedskew.core import spec
from fedskew.core.dataset import Dataset
from fedskew.losses import cross_entropy
from fedskew.runs.store import StoreError
from fedskew.simulation.simulation import Simulation

SMALL = {"clients": 3, "rounds": 2, "lr": 0.1, "batch_size": 32}
STRENGTH = 2.0


def own_loss(logits, labels, counts):
    return STRENGTH * cross_entropy(logits, labels, counts)


def own_method(strength: float = 1.0):
    return lambda logits, labels, counts: strength * cross_entropy(logits, labels, counts)


def needs_strength(strength: float):
    return own_method(strength)


def own_net(input_shape, num_classes, width: int = 8):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.ReLU(), nn.Linear(width, num_classes)
    )


def own_split(labels, clients, generator):
    return list(torch.arange(len(labels)).chunk(clients))


def own_data():
    x, y = torch.arange(24.0).reshape(12, 2), torch.arange(12) % 3
    return Dataset("mine", x, y, x, y, 3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_registered_method_is_its_spec(name):
    weighting = "uniform" if name in ("trimmed", "median") else "samples"
    assert Run(algorithm=ALGORITHMS[name](), weighting=weighting) == Run(algorithm=name, weighting=weighting)


def test_arguments_of_a_method_are_those_of_its_spec():
    for given, text in (
        (fedlc(1), "fedlc:tau=1"),
        (fedlc(tau=0.1 + 0.2, missing="epsilon"), "fedlc:tau=0.30000000000000004,missing=epsilon"),
        (fedlc(travel=0.5), "fedlc:travel=0.5"),
        (fedopt("yogi", eta=None), "fedopt:server=yogi,eta=none"),
        (scaffold(mean="uniform"), "scaffold:mean=uniform"),
        (combine(fedlc(1), scaffold()), "fedlc:tau=1+scaffold"),
        (combine(combine(fedlc(1)), scaffold()), "fedlc:tau=1+scaffold"),
    ):
        assert Run(algorithm=given).algorithm == Run(algorithm=text).algorithm
        assert Run(algorithm=given).hash == Run(algorithm=text).hash


def test_a_changed_method_is_another_one():
    changed = replace(fedlc(1), server=fedopt().server)
    assert Run(algorithm=changed).hash not in {Run(algorithm=fedlc(1)).hash, Run(algorithm=fedopt()).hash}
    assert Run(algorithm=changed).algorithm.startswith("fedlc@")


def last(run):
    *_, record = simulate(run)
    return record


def test_own_code_gives_what_the_same_in_a_file_gives(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import math\nfrom torch import nn\nfrom fedskew.losses import cross_entropy\n"
        "def own_loss():\n    return lambda logits, labels, counts: 2.0 * cross_entropy(logits, labels, counts)\n"
        "def own_net(input_shape, num_classes, width: int = 8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.ReLU(), "
        "nn.Linear(width, num_classes))\n"
    )
    expected = last(Run(algorithm=f"{file}:own_loss", model=f"{file}:own_net", **SMALL))
    for algorithm in (own_loss, own_method(2.0), Algorithm("mine", loss=own_loss)):
        found = last(Run(algorithm=algorithm, model=own_net, **SMALL))
        assert found.loss == expected.loss
    assert last(Run(algorithm=own_method, model=own_net, **SMALL)).loss != expected.loss


def test_specs_of_own_code_are_readable_and_bound():
    run = Run(algorithm=combine(Algorithm("my method", loss=own_loss), scaffold()), model=own_net)
    assert spec.parse(run.model)[2] == {"width": 8}
    assert run.short["model"] == "own_net:width=8"
    assert run.short["algorithm"] == "my_method+scaffold"
    assert Run(**run.model_dump()) == run
    assert (
        Run(**{**run.model_dump(), "model": run.model.replace("width=8", "width=4")}).short["model"]
        == "own_net:width=4"
    )
    assert Run(algorithm=own_method).short_algorithm == "own_method:strength=1"


def test_the_hash_follows_the_code(monkeypatch):
    first = Run(algorithm=own_loss)
    assert first.hash == Run(algorithm=own_loss).hash
    monkeypatch.setitem(globals(), "STRENGTH", 3.0)
    assert Run(algorithm=own_loss).hash != first.hash
    with pytest.raises(ValueError, match="own_loss has changed since the run was created"):
        next(simulate(first))


def test_a_module_is_taken_as_it_is_when_given():
    torch.manual_seed(1)
    module = own_net((64,), 10)
    run = Run(model=module, **SMALL)
    first = {name: leaf.clone() for name, leaf in module.state_dict().items()}
    expected = last(run).loss
    with torch.no_grad():
        module[1].weight.zero_()
    assert Run(model=module, **SMALL).hash != run.hash
    assert last(run).loss == expected
    module.load_state_dict(first)
    assert Run(model=module, **SMALL).hash == run.hash
    assert Run(model=nn.Flatten, **SMALL).model.startswith("Flatten@")


def test_a_data_set_is_its_content():
    usual = Run(dataset=own_data()).short
    assert (usual["dataset"], usual["partition"], usual["model"]) == ("mine", "dirichlet:0.1", "mlp")
    run = Run(dataset=own_data(), partition="iid", **SMALL)
    assert run.hash == Run(dataset=own_data(), partition="iid", **SMALL).hash
    other = replace(own_data(), y_test=torch.zeros(12, dtype=torch.int64))
    assert run.hash != Run(dataset=other, partition="iid", **SMALL).hash
    assert last(run).accuracy == last(Run(dataset=own_data, partition="iid", **SMALL)).accuracy


def test_data_with_clients_of_their_own_keep_them():
    run = Run(dataset=replace(own_data(), client_train=torch.arange(12) % 4), rounds=1)
    assert (run.partition, run.clients) == ("natural", 4)
    assert last(run).clients == 4


def test_a_data_set_that_was_changed_is_refused():
    data = own_data()
    run = Run(dataset=data, **SMALL)
    data.x_train.add_(1)
    with pytest.raises(ValueError, match="mine has changed since"):
        next(simulate(run))


def test_a_split_of_ones_own():
    run = Run(partition=own_split, **SMALL)
    assert run.short["partition"] == "own_split"
    assert last(run).clients == 3


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([range(9)] * 3, "partition mine lists sample 0 twice; each sample belongs to at most one client"),
        ([[0, 4, 4], [1], [2]], "partition mine lists sample 4 twice"),
        ([[0], [1], [2], [3]], "partition mine has 4 clients; the run has 3"),
        ([torch.arange(5), torch.arange(5, 9)], "partition mine has 2 clients; the run has 3"),
        ([[0, 5000], [1], [2]], r"partition mine: client 0 has indices 0\.\.5000; allowed: 0\.\.1441"),
        ([[0], [1], [-1]], r"partition mine: client 2 has indices -1\.\.-1; allowed: 0\.\.1441"),
        ([[0], [], [1]], "partition mine: client 1 has no sample; every client needs at least one"),
        (torch.eye(3) > 0, "partition mine: client 0 is not a list of sample indices"),
        ([[0.5], [1], [2]], "partition mine: client 0 is not a list of sample indices"),
        (np.arange(1442), "partition mine: client 0 is not a list of sample indices"),
        ({0: [1], 1: [2], 2: [3]}, "partition mine gives a dict; allowed: a list with the sample indices of each"),
        (None, "partition mine gives nothing; allowed: a list with the sample indices of each client"),
    ],
)
@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_a_split_of_ones_own_is_checked(parts, message, validation):
    def mine(labels, clients, generator):
        return parts

    message = message if not validation else message.replace("1441", r"13\d\d")
    with pytest.raises(ValueError, match=message):
        Simulation(Run(partition=mine, validation=validation, **SMALL))


ROWS = np.arange(9).reshape(3, 3)


@pytest.mark.parametrize(
    "parts",
    [ROWS, torch.from_numpy(ROWS), list(ROWS), tuple(ROWS.tolist()), [list(torch.from_numpy(row)) for row in ROWS]],
)
def test_a_split_of_ones_own_may_be_any_list_of_indices(parts):
    def mine(labels, clients, generator):
        return parts

    indices = Simulation(Run(partition=mine, **SMALL)).federation.indices
    assert [part.tolist() for part in indices] == ROWS.tolist()


def test_a_split_of_ones_own_that_fails_names_its_line():
    def mine(labels, clients, generator):
        return labels / nothing  # noqa: F821

    with pytest.raises(ValueError, match=r"partition mine failed: test_given\.py, line \d+, in mine: NameError: name"):
        Simulation(Run(partition=mine, **SMALL))


def test_where_the_object_is_gone_its_code_is_asked_for(tmp_path, monkeypatch):
    run = Run(algorithm=own_loss, **SMALL)
    list(simulate(run, store=tmp_path))
    assert len(list(simulate(run, store=tmp_path))) == 2
    hash = run.hash
    folder = Store(tmp_path).folder(hash)
    monkeypatch.setattr(spec, "LIVE", {})
    assert folder.about()["short"]["algorithm"] == "own_loss"
    with pytest.raises(StoreError, match=r"'own_loss' \(digest .*own code is needed"):
        Run.stored(folder)
    assert Run(algorithm=own_loss, **SMALL).hash == hash
    assert Run.stored(folder) == run


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"algorithm": 5}, ["algorithm is an int", "an Algorithm, a loss"]),
        ({"algorithm": needs_strength}, ["needs strength", "needs_strength(...)"]),
        ({"algorithm": lambda a, b: a}, ["a, b", "(logits, labels, counts)"]),
        ({"algorithm": eval("lambda view: view")}, ["no source"]),
        ({"model": torch.ones(2)}, ["model is a Tensor", "torch.nn.Module"]),
        ({"model": lambda depth: None}, ["needs depth"]),
        ({"dataset": 5}, ["dataset is an int", "(train, test)"]),
        ({"dataset": (1, 2)}, ["train is an int"]),
        ({"partition": 0.1}, ["partition is a float"]),
    ],
)
def test_what_cannot_be_a_field_says_why(fields, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Run(**fields)
    for word in words:
        assert word in str(caught.value)


def test_what_own_code_gives_is_checked():
    with pytest.raises(ValueError, match="nothing; allowed: a torch"):
        next(simulate(Run(model=lambda: None, **SMALL)))
    with pytest.raises(ValueError, match="failed: ZeroDivisionError"):
        next(simulate(Run(model=lambda: 1 / 0, **SMALL)))
    assert Run(algorithm=fedavg).short_algorithm == "fedavg"
