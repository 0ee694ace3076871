"""Flower's own differential privacy around our methods."""

import logging

import numpy as np
import pytest
import torch

from fedskew import Run
from tests.helpers import assert_trees_close

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import ArrayRecord
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)

from fedskew.core import tree
from fedskew.flower import Rules, client_app
from fedskew.flower.data import facts
from fedskew.flower.server import federate
from fedskew.simulation.plan import Plan
from tests.flower.in_process import THREE, Nodes

FIELDS = {"dataset": "digits", "partition": "dirichlet:0.3", "clients": 3, "rounds": 2, "lr": 0.1, "batch_size": 32}
FEDLC = Run(**FIELDS, algorithm="fedlc", weighting="uniform", engine="serial")


def first_model(run):
    return Plan.of(run, facts(run.dataset, run.seed, run.clients)).start().params


def far(params, run):
    return float(tree.norm(tree.sub(params, first_model(run)), 0))


def test_local_clipping_bounds_each_answer():
    run = FEDLC.model_copy(update={"rounds": 1})
    grid = Nodes(client_app(run, mods=[LocalDpMod(0.05, 0.0, 1.0, 1e-5)]), THREE)
    federated = federate(grid, run, Rules())
    assert far(federated.server.params, run) <= 0.05 * 1.001
    for delta in (tree.rows(federated.update.delta, k) for k in range(3)):
        assert float(tree.norm(delta, 0)) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedlc", "fedrs", "fedla", "fednova", "fedopt"])
def test_local_noise_is_there_for_every_method_with_one_record(algorithm):
    run = Run(**{**FIELDS, "rounds": 1}, algorithm=algorithm)
    grid = Nodes(client_app(run, mods=[LocalDpMod(0.001, 0.01, 1.0, 1e-5)]), THREE)
    update = federate(grid, run, Rules()).update
    deviation = 0.01 * np.sqrt(2 * np.log(1.25e5))
    values = torch.cat([leaf.flatten() for leaf in update.delta.values()])
    assert float(values.std()) == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize(
    ("make", "mods"),
    [
        (lambda s: DifferentialPrivacyServerSideFixedClipping(s, 0.0, 0.05, 3), []),
        (lambda s: DifferentialPrivacyClientSideFixedClipping(s, 0.0, 0.05, 3), [fixedclipping_mod]),
        (lambda s: DifferentialPrivacyServerSideAdaptiveClipping(s, 0.0, 3, initial_clipping_norm=0.05), []),
        (
            lambda s: DifferentialPrivacyClientSideAdaptiveClipping(s, 0.0, 3, initial_clipping_norm=0.05),
            [adaptiveclipping_mod],
        ),
    ],
)
def test_central_clipping(make, mods):
    run = FEDLC.model_copy(update={"rounds": 1})
    federated = federate(Nodes(client_app(run, mods=mods), THREE), run, Rules(), wrap=make)
    assert 0 < far(federated.server.params, run) <= 0.05 * 1.001


def test_central_noise_reaches_the_model_and_the_checkpoint(tmp_path):
    from fedskew import Store
    from fedskew.runs.checkpoint import load_checkpoint

    def wrap(strategy):
        return DifferentialPrivacyServerSideFixedClipping(strategy, 3.0, 0.1, 3)

    rules = Rules(store=str(tmp_path))
    federated = federate(Nodes(client_app(FEDLC), THREE), FEDLC, rules, wrap=wrap)
    move = tree.sub(federated.server.params, first_model(FEDLC))
    values = torch.cat([leaf.flatten() for leaf in move.values()])
    assert float(values.std()) == pytest.approx(0.1 * np.sqrt(2), rel=0.1)  # two rounds of noise
    kept = load_checkpoint(Store(tmp_path).folder(FEDLC.hash).checkpoint).server.params
    assert_trees_close({name: kept[name] for name in move}, federated.server.params, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"algorithm": "scaffold"}, "also sends messages"),
        ({"model": "cnn:width=4,padding=1"}, "sends batch statistics"),
        ({"weighting": "samples"}, "weighting is 'samples'; allowed: uniform"),
        ({"algorithm": "fednova"}, "adds its noise to a plain mean, which fednova does not use"),
        ({"algorithm": "fedopt"}, "which fedopt does not use"),
        ({"algorithm": "median"}, "which median does not use"),
        ({"dropout_rate": 0.2}, "dropout_rate is 0.2"),
    ],
)
def test_what_central_privacy_cannot_do_is_refused_at_the_start(more, problem):
    run = Run(**{**FIELDS, "weighting": "uniform", **more})

    def wrap(strategy):
        raise AssertionError("not reached")

    with pytest.raises(ValueError, match=problem):
        federate(Nodes(client_app(run), THREE), run, Rules(), wrap=wrap)


def test_central_privacy_needs_every_answer():
    def breaks(message, context, call_next):
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("away")
        return call_next(message, context)

    def wrap(strategy):
        return DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 0.1, 3)

    with pytest.raises(RuntimeError, match="2 clients answered properly, but min-clients requires 3"):
        federate(Nodes(client_app(FEDLC, mods=[breaks]), THREE), FEDLC, Rules(), wrap=wrap)


@pytest.mark.parametrize("mod", [LocalDpMod(1.0, 0.0, 1.0, 1e-5), fixedclipping_mod, adaptiveclipping_mod])
@pytest.mark.parametrize(
    ("more", "problem"),
    [({"algorithm": "scaffold"}, "also sends messages"), ({"model": "cnn:width=4,padding=1"}, "batch statistics")],
)
def test_what_local_privacy_cannot_do_is_refused_at_the_start(mod, more, problem, caplog):
    run = Run(**FIELDS, **more)
    with caplog.at_level(logging.WARNING, "flwr"), pytest.raises(RuntimeError, match=f"node 100: .*{problem}"):
        federate(Nodes(client_app(run, mods=[mod]), THREE), run, Rules(start_timeout=0.1))


def test_noise_for_another_number_of_clients_is_refused():
    def wrap(strategy):
        return DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 0.1, 1000)

    with pytest.raises(ValueError, match="num_sampled_clients is 1000; allowed: 3"):
        federate(Nodes(client_app(FEDLC), THREE), FEDLC, Rules(), wrap=wrap)


def test_a_node_that_does_not_clip_is_refused(caplog):
    def wrap(strategy):
        return DifferentialPrivacyClientSideFixedClipping(strategy, 0.1, 0.05, 3)

    with caplog.at_level(logging.WARNING, "flwr"), pytest.raises(RuntimeError, match="0 clients answered properly"):
        federate(Nodes(client_app(FEDLC), THREE), FEDLC, Rules(), wrap=wrap)
    assert any("clipping on the node allows" in text for text in caplog.messages)


def test_the_order_of_a_replys_arrays_does_not_matter_to_clipping():
    run = FEDLC.model_copy(update={"rounds": 1})

    def turned(reply):
        if reply.has_content() and "params" in reply.content:
            arrays = reply.content["params"]
            reply.content["params"] = ArrayRecord({name: arrays[name] for name in reversed(list(arrays))})
        return reply

    def wrap(strategy):
        return DifferentialPrivacyServerSideFixedClipping(strategy, 0.001, 0.05, 3)

    ends = [
        federate(Nodes(client_app(run), THREE, change), run, Rules(), wrap=wrap).server.params
        for change in (turned, lambda reply: reply)
    ]
    assert far(ends[0], run) <= 0.05 * 1.001 + 0.01
    assert float(tree.norm(tree.sub(*ends), 0)) < 0.01
