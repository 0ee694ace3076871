"""What docs/privacy.md says a server can compute from ordinary training replies, which contain no label counts."""

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.algorithms import describe

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import Message

from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.data import facts, load_dataset
from fedskew.flower import Rules, client_app
from fedskew.flower.messages import (
    LAYER,
    METRICS,
    PARAMS,
    Call,
    encode_call,
    server_records,
)
from fedskew.flower.reading import READOUT
from fedskew.flower.server import federate
from fedskew.simulation.plan import Plan, build_federation
from tests.flower.in_process import Nodes

RUN = Run(
    dataset="digits",
    partition="dirichlet:0.3",
    clients=5,
    rounds=1,
    lr=0.1,
    batch_size=2000,
    engine="serial",
    weighting="uniform",
)
NODES = [{"partition-id": client} for client in range(RUN.clients)]
BIAS = "linear.bias"
OF_THE_STEP = {"fedcm": 0.1}
"""The share of a local step that is the client's own gradient, where it is not all."""
OFF_BY = {"fedvls": 2.0}
"""Its penalty moves the bias too, by a known function of the counts that is not solved for here."""


def counts_of(run):
    federation = build_federation(run)
    labels = [federation.dataset.y_train[mine] for mine in federation.indices]
    return federation, np.stack([torch.bincount(mine, minlength=10).numpy() for mine in labels])


@pytest.mark.parametrize("name", [*(method.name for method in describe()), "fedlc+scaffold"])
def test_a_server_that_chooses_the_model_gets_label_counts_from_one_reply(name):
    """With weights of zero and one huge bias the softmax is the same one-hot vector for all examples. So the gradient
    by the bias is that vector less the shares of the labels, and one full-batch step sends it."""
    run = RUN.replace(algorithm=name)
    federation, counts = counts_of(run)
    start = Plan.of(run, federation.dataset).start()
    chosen = tree.map(torch.zeros_like, start.params)
    chosen[BIAS][0] = 1000.0
    server, grid = Server(chosen, start.buffers, start.correction, {}), Nodes(client_app(run), NODES)
    for client, expected in enumerate(counts):
        call = encode_call(Call(run.hash, client, 1, server, 0), server_records(server))
        (reply,) = grid.send_and_receive([Message(call, 100 + client, "train")])
        examples = reply.content[METRICS]["num-examples"]
        moved = reply.content[PARAMS][BIAS].numpy() - chosen[BIAS].numpy()
        found = moved / (run.lr * OF_THE_STEP.get(name, 1.0)) * examples
        found[0] = examples - found[1:].sum()  # a thousand leaves few digits for a small change
        assert found == pytest.approx(expected, abs=OFF_BY.get(name, 1e-3))


def test_a_readout_gives_label_counts_in_one_ask_to_a_server_that_chooses_the_layer():
    run = RUN.replace(algorithm="refit")
    federation, counts = counts_of(run)
    params = Plan.of(run, federation.dataset).start().params
    layer = {name: torch.zeros_like(params[name]) for name in ("linear.weight", BIAS)}
    layer[BIAS][0] = 1000.0
    grid = Nodes(client_app(run), NODES)
    for client, expected in enumerate(counts):
        server = Server(params, {}, {}, {})
        ask = encode_call(Call(run.hash, client, 1, server, layer=layer), server_records(server))
        (reply,) = grid.send_and_receive([Message(ask, 100 + client, READOUT)])
        found = -reply.content[LAYER][BIAS].numpy()
        found[0] += expected.sum()
        assert found.tolist() == expected.tolist()


def test_measuring_gives_the_test_examples_of_a_class_to_a_server_that_chooses_the_model(tmp_path):
    run = Run(dataset="nodes:64,10", clients=1, rounds=1, engine="serial")
    data = load_dataset("digits", 0, 1)
    x, y = data.x_test.flatten(1).float().numpy(), data.y_test.numpy()
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    grid = Nodes(client_app(run), [{"client-id": 0, "data": str(tmp_path / "own.npz")}])
    chosen = tree.map(torch.zeros_like, Plan.of(run, facts(run.dataset, 0, 1)).start().params)
    for label in range(10):
        chosen[BIAS] = 1000.0 * torch.eye(10)[label]
        server = Server(chosen, {}, {}, {})
        ask = encode_call(Call(run.hash, 0, 1, server), server_records(server))
        (reply,) = grid.send_and_receive([Message(ask, 100, "evaluate")])
        assert reply.content[METRICS]["correct"] == (y == label).sum()


def test_an_honest_server_sees_roughly_which_classes_a_client_has():
    """In the first round of FedAvg, the biases of classes that a client has rise more than those of others."""
    run = RUN.replace(algorithm="fedavg", clients=10, batch_size=16)
    _, counts = counts_of(run)
    grid = Nodes(client_app(run), [{"partition-id": client} for client in range(10)])
    federate(grid, run, Rules())
    ordered = []
    trained = [message.content for message in grid.messages if message.metadata.message_type == "train"]
    sent = next(content[PARAMS][BIAS].numpy() for content in trained if METRICS not in content)
    for content in (content for content in trained if METRICS in content):
        moved, has = content[PARAMS][BIAS].numpy() - sent, counts[content[METRICS]["client"]] > 0
        ordered += (moved[has][:, None] > moved[~has]).ravel().tolist()
    assert len(ordered) > 50
    assert np.mean(ordered) > 0.9
