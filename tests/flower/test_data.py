"""A node's own data, and what a server without any knows."""

import logging

import numpy as np
import pytest
from PIL import Image

from fedskew import Run, simulate
from fedskew.data.nodes import nodes
from fedskew.simulation.plan import build_federation
from tests.cli.calling import call
from tests.helpers import assert_trees_close, assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app
from fedskew.flower.server import federate
from tests.flower.in_process import THREE, Nodes

RUN = Run(
    dataset="digits",
    partition="dirichlet:0.3",
    clients=3,
    rounds=2,
    algorithm="fedlc+scaffold",
    lr=0.1,
    batch_size=32,
    engine="serial",
)


@pytest.fixture
def own_files(tmp_path):
    """Each client's examples in a file of its own, in the order in which the split has them."""
    federation = build_federation(RUN)
    data, configs = federation.dataset, []
    for client, index in enumerate(federation.indices):
        path = tmp_path / f"client{client}.npz"
        np.savez(path, x_train=data.x_train[index].numpy(), y_train=data.y_train[index].numpy())
        configs.append({"client-id": client, "data": str(path)})
    return configs


def without_data():
    """The same run with data that only the nodes have."""
    data = build_federation(RUN).dataset
    fields = RUN.model_dump(exclude={"partition", "dataset"})
    return Run(dataset=f"nodes:1x8x8,10,mean={data.mean[0]!r},std={data.std[0]!r}", **fields)


def test_own_files_give_the_same_bits_as_parts_of_the_data_set(own_files):
    parts = [{"partition-id": client} for client in range(3)]
    expected = federate(Nodes(client_app(RUN), parts), RUN, Rules())
    federated = federate(Nodes(client_app(RUN), own_files), RUN, Rules())
    assert_trees_equal(federated.server.params, expected.server.params)


def test_a_server_without_data(own_files, tmp_path, capsys):
    run, rules = without_data(), Rules(store=str(tmp_path / "runs"))
    assert run.hash != RUN.hash
    federated = federate(Nodes(client_app(run), own_files), run, rules)
    for command in (["runs", "list"], ["runs", "show", run.hash], ["report", "-o", str(tmp_path / "report.html")]):
        code, _, err = call(capsys, *command, "--runs", rules.store)
        assert code == 0, err
    *_, expected = simulate(RUN)
    assert_trees_close(federated.server.params, expected.server.params, rtol=1e-6, atol=1e-6)


def test_an_evaluation_of_ones_own(own_files, tmp_path):
    from fedskew import Store, load_model
    from fedskew.core.evaluation import Evaluation
    from fedskew.runs.export import export_model

    run, seen = without_data(), []

    def evaluate(server):
        seen.append(set(server.params))
        return Evaluation(0.5, 0.5, 1.0, [0.5] * 10, None)

    federate(Nodes(client_app(run), own_files), run, Rules(store=str(tmp_path / "runs")), evaluate)
    folder = Store(tmp_path / "runs").folder(run.hash)
    assert len(seen) == 2
    assert [record["accuracy"] for record in folder.records()] == [0.5, 0.5]
    assert export_model(folder, tmp_path / "model.safetensors") == 2
    assert load_model(tmp_path / "model.safetensors") is not None


def test_such_a_run_is_not_for_a_simulation():
    with pytest.raises(ValueError, match="only the nodes of a federation hold these examples"):
        next(simulate(without_data()))


def test_a_folder_of_images(tmp_path):
    """Classes by name; a client need not have all of them."""
    run = Run(dataset="nodes:3x6x6,3,mean=100/100/100,std=50/50/50,names=cat/dog/owl", clients=2, rounds=1, model="mlp")
    generator = np.random.default_rng(0)
    for client, classes in enumerate((["cat", "owl"], ["dog"])):
        for name in classes:
            (tmp_path / str(client) / name).mkdir(parents=True)
            for i in range(5):
                pixels = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / str(client) / name / f"{i}.png")
    configs = [{"client-id": client, "data": str(tmp_path / str(client))} for client in range(2)]
    grid = Nodes(client_app(run), configs)
    federated = federate(grid, run, Rules())
    assert federated.absorbed == {0: 1, 1: 1}
    metrics = [m.content["metrics"] for m in grid.messages if m.has_content() and "metrics" in m.content]
    assert [record["num-examples"] for record in metrics] == [10, 5]


EXAMPLES = np.zeros((4, 8, 8), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x_train": EXAMPLES}, "has no y_train"),
        (
            {"x_train": EXAMPLES, "y_train": np.arange(3)},
            "y_train is int64 [3] for examples [4, 8, 8]; allowed: as many",
        ),
        (
            {"x_train": EXAMPLES, "y_train": np.ones(4)},
            "y_train is float64 [4] for examples [4, 8, 8]; allowed: integers",
        ),
        (
            {"x_train": EXAMPLES, "y_train": np.eye(4, 10, dtype=int)},
            "y_train is int64 [4, 10] for examples [4, 8, 8]; ",
        ),
        (
            {"x_train": EXAMPLES[:0], "y_train": np.arange(0)},
            "y_train is int64 [0] for examples [0, 8, 8]; allowed: one",
        ),
        ({"x_train": np.zeros((4, 7, 7), np.uint8), "y_train": np.arange(4)}, "allowed: [1, 8, 8]"),
        ({"x_train": EXAMPLES, "y_train": np.arange(4) + 8}, "train label 11 is outside 0..9"),
        (None, "own.npz', which is not there; allowed: an .npz file or a folder of images"),
    ],
)
def test_wrong_data_are_named(arrays, problem, tmp_path, caplog):
    if arrays is not None:
        np.savez(tmp_path / "own.npz", **arrays)
    configs = [{"partition-id": 0}, {"partition-id": 1}, {"client-id": 2, "data": str(tmp_path / "own.npz")}]
    with caplog.at_level(logging.WARNING, "flwr"):
        federate(Nodes(client_app(RUN), configs), RUN, Rules(start_timeout=0.1))
    assert any("node 102 is refused" in text and problem in text for text in caplog.messages)


def test_a_node_without_data_is_named():
    run = without_data()
    configs = [{"client-id": client} for client in range(3)]
    with pytest.raises(RuntimeError, match=r"0 clients have joined.*node 100: client 0: node-config: data is missing"):
        federate(Nodes(client_app(run), configs), run, Rules(start_timeout=0.1))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"shape": "3x0", "classes": 2}, "shape is '3x0'"),
        ({"shape": "wide", "classes": 2}, "shape is 'wide'"),
        ({"shape": "4", "classes": 1}, "classes is 1"),
        ({"shape": "4", "classes": 2, "mean": "1"}, "mean and std belong together"),
        ({"shape": "3x4x4", "classes": 2, "mean": "1", "std": "1"}, r"allowed: 3 number\(s\)"),
        ({"shape": "4", "classes": 2, "mean": "1", "std": "0"}, "allowed: numbers above 0"),
        ({"shape": "4", "classes": 2, "names": "a/a"}, "allowed: 2 different names"),
    ],
)
def test_a_wrong_description_of_data(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        nodes(**arguments)


def test_a_model_that_does_not_fit_the_data_of_the_nodes_ends_the_run_before_anybody_is_asked(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))\n")
    run = RUN.replace(dataset="nodes:64,10", partition="natural", model=f"{file}:net")
    grid = Nodes(client_app(run), THREE)
    with pytest.raises(ValueError, match=r"own.py:net returns shape \[9\] per example; allowed: \[10\]"):
        federate(grid, run, Rules(start_timeout=0.1))
    assert not grid.messages
