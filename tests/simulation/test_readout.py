"""`refit` changes what is measured and exported, and nothing of the training."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedskew import Run, load_model, simulate
from fedskew.core.reading import Reading, read_out
from fedskew.core.round import Server
from fedskew.diagnostics.calibration_error import calibration
from fedskew.diagnostics.observing import from_folder
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.store import Store, StoreError
from fedskew.simulation.records import RoundRecord
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import assert_trees_close

FIELDS = {
    "dataset": "digits", "partition": "shards:2", "clients": 5, "model": "mlp:hidden=16", "lr": 0.1, "batch_size": 16,
    "rounds": 13, "eval_every": 13,
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


def test_probes_see_the_model_that_is_measured():
    *_, last = simulate(run(), [calibration])
    counted = last.probes["calibration"]["confusion"]
    right = sum(row[label] for label, row in enumerate(counted)) / sum(map(sum, counted))
    assert right == pytest.approx(last.accuracy, abs=1e-9)


def test_a_run_resumed_after_a_round_without_a_measurement_ends_the_same(tmp_path):
    whole = [record.accuracy for record in simulate(run())]
    assert whole[1] is None
    parts = iter(simulate(run(), store=tmp_path))
    next(parts), next(parts)
    parts.close()
    with pytest.raises(StoreError, match="round 2, in which its model was not measured"):
        load_model(run().hash, tmp_path)
    with pytest.raises(StoreError, match="round 2, in which its model was not measured"):
        from_folder(Store(tmp_path).find(run().hash))
    assert [record.accuracy for record in simulate(run(), store=tmp_path)] == whole


def test_it_does_not_depend_on_when_the_model_was_measured():
    often, rarely = (list(simulate(run(eval_every=every))) for every in (1, 13))
    assert often[1].accuracy is not None
    assert rarely[1].accuracy is None
    assert often[-1].accuracy == rarely[-1].accuracy


def test_held_out_examples_are_not_fitted_and_are_measured_with_the_fit():
    held = Simulation(run(validation=0.2, eval_every=1))
    record = advance([held])[0]
    there, data = held.federation.held_out, held.federation.dataset
    said, _ = held.model.apply(
        held.server.used, held.server.buffers, data.prepare(data.x_train[there], torch.float32), train=False
    )
    assert record.validation_accuracy == (said.logits.argmax(-1) == data.y_train[there]).double().mean().item()
    wrong = data.y_train.clone()  # of held-out examples, in a copy: data are shared
    wrong[there] = (wrong[there] + 1) % 10
    other = replace(held.federation, dataset=replace(data, y_train=wrong))
    again = read_out(held.algorithm.readout, held.model, held.server.params, held.server.buffers, other)
    assert_trees_close(again.layer, held.server.readout, 0.0)


def test_features_that_are_not_finite_are_not_fitted():
    simulation = Simulation(run())
    huge = {name: math.inf * leaf if "hidden" in name else leaf for name, leaf in simulation.server.params.items()}
    found = read_out(simulation.algorithm.readout, simulation.model, huge, {}, simulation.federation)
    assert found == Reading({}, asked=0)


def test_a_record_says_how_many_gradients_were_asked_for(tmp_path):
    read = run(algorithm="fedlc+refit:asks=4", rounds=12, eval_every=12)
    for _ in range(2):  # computed, then read
        assert [record.asked for record in simulate(read, store=tmp_path)] == [0, 0, *[4 * 5] * 10]
    assert {record.asked for record in simulate(run(algorithm="fedlc"))} == {0}


def test_asks_that_were_not_made_are_not_counted():
    """A strong pull ends the descent long before the limit."""
    record = advance([Simulation(run(algorithm="refit:asks=500,pull=10", eval_every=1))])[0]
    assert 2 <= record.asked / 5 < 100
    assert record.asked % 5 == 0


def test_a_model_that_has_diverged_is_not_fitted():
    records = list(simulate(run(lr=1e30, eval_every=1)))
    assert records[-1].diverged
    assert records[-1].asked == 0


def test_a_record_of_an_earlier_version_has_no_asks():
    kept = advance([Simulation(run())])[0].as_dict()
    assert RoundRecord.stored({name: value for name, value in kept.items() if name != "asked"}).asked == 0


def test_the_time_of_a_fit_is_the_rounds(monkeypatch):
    """With a clock that goes on only in fits."""
    clock = [0.0]

    def slow(*given):
        clock[0] += 60
        return read_out(*given)

    monkeypatch.setattr("fedskew.simulation.simulation.read_out", slow)
    monkeypatch.setattr("fedskew.simulation.simulation.time.perf_counter", lambda: clock[0])
    assert [record.seconds for record in simulate(run(rounds=12, eval_every=12))] == [0, 0, *[60] * 10]


def test_the_checkpoint_keeps_it_apart_from_the_trained_model(tmp_path):
    list(simulate(run(), store=tmp_path))
    server = load_checkpoint(Store(tmp_path).find(run().hash).checkpoint).server
    assert list(server.readout) == list(server.params)[-2:]
    for name, leaf in server.readout.items():
        assert not torch.equal(leaf, server.params[name])
        assert server.used[name] is leaf
    assert Server({}, {}, {}, {}).used == {}


class Tempered(nn.Module):
    """Its outputs are a linear layer's only as long as the temperature is 1."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.linear(x.flatten(1)) / self.temperature


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10).requires_grad_(False)

    def forward(self, x):
        return self.last(self.first(x.flatten(1)))


@pytest.mark.parametrize(("model", "problem"), [(Tempered, "not a linear layer's"), (Fixed, "is not trained")])
def test_a_model_of_ones_own_that_cannot_be_fitted_is_refused(model, problem):
    with pytest.raises(ValueError, match=problem):
        Simulation(run(model=model()))


def test_memory_for_features_is_counted():
    plain, read = Simulation(run(algorithm="fedlc")), Simulation(run())
    assert read.need().work - plain.need().work == len(read.federation.order) * 16 * 4


@pytest.mark.parametrize("model", ["mlp:hidden=16,head=unit", "mlp:hidden=16,head=etf"])
def test_a_last_layer_that_is_not_linear_is_refused(model):
    with pytest.raises(ValueError, match=r"fedlc\+refit cannot fit"):
        Simulation(run(model=model))


def test_a_shorter_run_leaves_the_cost_and_the_probes_of_the_longer_one(tmp_path):
    """It measures, and so fits, rounds that the longer one did not."""
    longer = run(rounds=26, eval_every=26)
    before = list(simulate(longer, [lambda seen: {"looked": seen.round}], store=tmp_path))
    list(simulate(run(rounds=13), store=tmp_path))
    after = list(simulate(longer, store=tmp_path))
    assert after[12].accuracy is not None
    assert before[12].accuracy is None
    assert [record.asked for record in after] == [record.asked for record in before]
    assert [record.seconds for record in after] == [record.seconds for record in before]
    assert [record.probes for record in after] == [record.probes for record in before]
