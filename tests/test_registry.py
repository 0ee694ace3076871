"""A method in one file, and one line that registers it, is in everything that knows methods."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew
from fedskew import Algorithm, Run, simulate
from fedskew.algorithms import ALGORITHMS, describe
from fedskew.core.view import View
from fedskew.losses import cross_entropy
from tests.cli.calling import call
from tests.helpers import assert_trees_close

ROOT = Path(__file__).parents[1]


def confident(view: View, beta: float) -> Tensor:
    """beta times the squared distance of the logits from the global model's."""
    apart = view.outputs.logits - view.teacher().logits
    return cross_entropy(view.outputs.logits, view.labels, view.counts) + beta * apart.square().mean(-1)


def fedtoy(beta: float = 0.5) -> Algorithm:
    """Logits stay near the global model's."""
    return Algorithm("fedtoy", loss=lambda view: confident(view, beta))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "fedtoy", fedtoy)


DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "partition": "dirichlet:0.3",
    "clients": 3,
    "rounds": 2,
    "lr": 0.1,
    "batch_size": 32,
    "algorithm": "fedtoy:beta=0.1",
}


@pytest.mark.usefixtures("registered")
def test_it_is_public_and_described() -> None:
    assert fedskew.fedtoy is fedtoy
    assert "fedtoy" in dir(fedskew)
    (found,) = (method for method in describe() if method.name == "fedtoy")
    assert (found.spec, found.sets, found.about) == (
        "fedtoy:beta=0.5",
        ("loss",),
        "Logits stay near the global model's.",
    )


@pytest.mark.usefixtures("registered")
def test_it_is_in_the_help_and_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "methods", "--json")
    assert code == 0
    assert "fedtoy" in [method["name"] for method in json.loads(out)]
    where = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert where is not None
    assert where.loader is not None
    generate = importlib.util.module_from_spec(where)
    where.loader.exec_module(generate)
    assert "| `fedtoy:beta=0.5` | loss |" in generate.with_methods((ROOT / "README.md").read_text())


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("engine", ["stacked", "threaded", "graphed"])
def test_it_runs_in_every_engine(engine: str) -> None:
    ends = []
    for name in ("serial", engine):
        last = list(simulate(Run(**DIGITS, model="cnn:width=4,padding=1", precision="fp64", engine=name)))[-1].server
        assert last is not None
        ends.append(last.params)
    assert_trees_close(ends[1], ends[0], rtol=1e-9, atol=1e-11)
    plain = list(simulate(Run(**{**DIGITS, "algorithm": "fedavg"}, model="cnn:width=4,padding=1", precision="fp64")))
    assert plain[-1].server is not None
    assert not torch.equal(plain[-1].server.params["linear.weight"], ends[0]["linear.weight"])


@pytest.mark.usefixtures("registered")
def test_it_runs_in_a_federation() -> None:
    pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")
    from fedskew.flower import Rules, client_app
    from fedskew.flower.server import federate
    from tests.flower.in_process import Nodes

    run = Run(**DIGITS, engine="serial")
    nodes = Nodes(client_app(run), [{"partition-id": client} for client in range(run.clients)])
    federated = federate(nodes, run, Rules()).server.params
    last = list(simulate(run))[-1].server
    assert last is not None
    assert_trees_close(federated, last.params, rtol=1e-6, atol=1e-6)
