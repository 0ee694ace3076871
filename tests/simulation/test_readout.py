"""`refit` changes what is measured and exported, and nothing of the training."""

import pytest
import torch

from fedskew import Run, load_model, simulate
from fedskew.core.round import Server
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.store import Store
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import assert_trees_close

FIELDS = {
    "dataset": "digits", "partition": "shards:2", "clients": 5, "model": "mlp:hidden=16", "lr": 0.1, "batch_size": 16,
    "rounds": 4, "eval_every": 2,
}  # fmt: skip


def run(**fields):
    return Run(**{**FIELDS, "algorithm": "fedlc+refit", **fields})


def test_training_is_as_without_it():
    plain, read = Simulation(run(algorithm="fedlc")), Simulation(run())
    for _ in range(3):
        one, other = advance([plain])[0], advance([read])[0]
        assert one.train_loss == other.train_loss
    assert_trees_close(plain.server.params, read.server.params, 0.0)
    assert not plain.server.readout


def test_what_is_measured_is_what_is_exported(tmp_path):
    records = list(simulate(run(), store=tmp_path))
    plain = list(simulate(run(algorithm="fedlc"), store=tmp_path))
    model = load_model(run().hash, tmp_path)
    data = Simulation(run()).federation.dataset
    with torch.no_grad():
        right = (model(data.x_test).argmax(-1) == data.y_test).double().mean().item()
    assert right == pytest.approx(records[-1].accuracy, abs=1e-9)
    assert records[-1].accuracy > plain[-1].accuracy + 0.05


def test_a_resumed_run_ends_the_same(tmp_path):
    whole = [record.accuracy for record in simulate(run())]
    parts = simulate(run(), store=tmp_path)
    iterator = iter(parts)
    next(iterator), next(iterator)
    iterator.close()
    assert [record.accuracy for record in simulate(run(), store=tmp_path)] == whole


def test_it_does_not_depend_on_when_the_model_was_measured():
    often, rarely = (list(simulate(run(eval_every=every)))[-1].accuracy for every in (1, 4))
    assert often == rarely


def test_held_out_examples_are_not_fitted_and_are_measured_with_the_fit():
    held = Simulation(run(validation=0.2))
    record = advance([held])[0] if held.run.rounds < 11 else None
    assert not set(held.federation.order.tolist()) & set(held.federation.held_out.tolist())
    there = held.federation.held_out
    data = held.federation.dataset
    model, _ = held.model.apply(
        held.server.used, held.server.buffers, data.prepare(data.x_train[there], torch.float32), train=False
    )
    assert record.validation_accuracy == (model.logits.argmax(-1) == data.y_train[there]).double().mean().item()


def test_the_checkpoint_keeps_it_apart_from_the_trained_model(tmp_path):
    list(simulate(run(), store=tmp_path))
    server = load_checkpoint(Store(tmp_path).find(run().hash).checkpoint).server
    assert list(server.readout) == list(server.params)[-2:]
    for name, leaf in server.readout.items():
        assert not torch.equal(leaf, server.params[name])
        assert server.used[name] is leaf
    assert Server({}, {}, {}, {}).used == {}


@pytest.mark.parametrize("model", ["mlp:hidden=16,head=unit", "mlp:hidden=16,head=etf"])
def test_a_last_layer_that_is_not_linear_is_refused(model):
    with pytest.raises(ValueError, match=r"fedlc\+refit cannot fit"):
        Simulation(run(model=model))
