import sys

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.algorithms import build_algorithm
from fedskew.core.round import Batch, Context, Recipe, local_update
from fedskew.diagnostics.deviation_bound import deviation, measure, pairs
from fedskew.diagnostics.kinds import kinds
from fedskew.diagnostics.observing import observe
from fedskew.diagnostics.outputs import Outputs
from fedskew.diagnostics.signs import above
from fedskew.losses import on_examples
from fedskew.models import logistic
from fedskew.models.model import Model
from fedskew.optimizers import sgd
from fedskew.simulation.simulation import Simulation, advance

MEANS = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)


def one_update(counts, algorithm="fedavg"):
    """A client with these counts whose examples are their class's mean, from a classifier of zeros: h are the inputs,
    all probabilities are 1/2, and D_jr = 0.5 * 1.25 / (0.5 * 1) = 1.25."""
    labels = torch.repeat_interleave(torch.arange(2), torch.tensor(counts))
    x, chosen = MEANS[labels], build_algorithm(algorithm)
    model = Model(logistic((2,), 2))
    params = {name: torch.zeros_like(leaf) for name, leaf in model.init(torch.float64, "cpu")[0].items()}
    context = Context(params, {}, {}, {}, torch.tensor(counts), torch.tensor(1.0))
    recipe = Recipe(model, chosen, sgd(0.1))
    update = local_update(recipe, context, [Batch(x, labels)] * 3, torch.tensor(3))
    made = Outputs(x, torch.zeros(len(x), 2, dtype=torch.float64)), labels
    found = measure(on_examples(chosen.loss), torch.tensor(counts), made, made, update.delta["linear.weight"])
    (row,) = pairs(0, counts, found)
    return row


def test_theorem_1_where_the_ratio_is_far_above_the_bound():
    row = one_update([50, 1])
    assert (row["j"], row["r"], row["ratio"]) == (0, 1, 50)
    assert row["bound"] == pytest.approx(1.25)
    assert above(row, 10)
    assert row["own"] < 0 < row["other"]
    assert row["step_own"] < 0 < row["step_other"]


def test_theorem_1_where_the_ratio_is_below_the_bound():
    row = one_update([11, 10])
    assert row["ratio"] == pytest.approx(1.1)
    assert row["bound"] == pytest.approx(1.25)
    assert not above(row)
    assert row["own"] > 0 > row["other"]
    assert row["step_own"] > 0 > row["step_other"]


def test_theorem_3_calibration_raises_the_bound_and_turns_the_sign():
    plain, calibrated = one_update([16, 4]), one_update([16, 4], "fedlc:tau=10")
    assert above(plain)
    assert plain["own"] < 0
    assert calibrated["bound"] > calibrated["ratio"]
    assert calibrated["own"] > 0
    assert plain["printed"] is None
    assert calibrated["printed"] > 0


@pytest.fixture(scope="module")
def simulation():
    made = Simulation(Run(model="mlp", partition="dirichlet:0.1", clients=4, lr=0.1, batch_size=16, engine="serial"))
    for _ in range(3):
        advance([made])
    return made


def by_loops(seen, k, j, r):
    """D_jr of one pair, example by example, with test examples for a class the client misses."""
    federation, params = seen.cohort.federation, seen.before.params
    data = federation.dataset
    index = federation.indices[k]
    x, y = data.x_train[index], data.y_train[index]

    def means(c):
        mine = x[y == c] if (y == c).any() else data.x_test[data.y_test == c]
        h = seen.model.apply(params, {}, data.prepare(mine, torch.float32), train=False)[0].features.double()
        logits = h @ params["linear.weight"].double().T + params["linear.bias"].double()
        return h.mean(0), logits.softmax(-1).mean(0)

    (hj, pj), (hr, pr) = means(j), means(r)
    own = seen.update.delta["linear.weight"][k][r].double() @ hr
    return ((1 - pr[r]) * hr.dot(hr) / (pj[r] * hr.dot(hj))).item(), own.item()


def test_rows_of_a_run(simulation):
    seen = observe(simulation)
    found = deviation(seen)["deviation"]
    counts = simulation.federation.counts(np.arange(4)).tolist()
    groups = [kinds(row) for row in counts]
    assert len(found["pairs"]) == sum(len(g["majority"]) * (len(g["minority"]) + len(g["missing"])) for g in groups)
    assert {row["kind"] for row in found["pairs"]} == {"minority", "missing"}
    for row in found["pairs"][::5]:
        k, j, r = row["client"], row["j"], row["r"]
        assert row["ratio"] == (pytest.approx(counts[k][j] / counts[k][r], rel=1e-5) if counts[k][r] else None)
        bound, own = by_loops(seen, k, j, r)
        assert row["bound"] == pytest.approx(bound, rel=1e-3)
        assert row["own"] == pytest.approx(own, rel=1e-3, abs=1e-5)
    assert found["loss"] == "cross_entropy"


def test_a_missing_class_is_always_above_and_far_above_the_sign_holds(simulation):
    found = deviation(observe(simulation))["deviation"]["summary"]
    assert found["kinds"]["missing"]["above"] == 1
    assert found["signs"]["far_above"]["update"]["own"] == 1
    calibrated = deviation(observe(simulation, algorithm="fedlc:tau=3"))["deviation"]
    assert calibrated["loss"] == "calibrated"
    assert calibrated["summary"]["kinds"]["minority"]["above"] < found["kinds"]["minority"]["above"]
    assert calibrated["summary"]["printed_above"] is not None


def test_a_loss_without_a_softmax(simulation):
    found = deviation(observe(simulation, algorithm="fedlc:denominator=others"))["deviation"]
    assert found == {"loss": "calibrated", "softmax": False, "summary": None, "left_out": 0, "pairs": []}


def test_many_pairs_are_thinned_out(simulation, monkeypatch):
    whole = deviation(observe(simulation))["deviation"]
    monkeypatch.setattr(sys.modules["fedskew.diagnostics.deviation_bound"], "MOST", 10)
    found = deviation(observe(simulation))["deviation"]
    assert whole["left_out"] == 0
    assert 5 <= len(found["pairs"]) <= 10
    assert len(found["pairs"]) + found["left_out"] == len(whole["pairs"])
    assert found["summary"] == whole["summary"]


def test_the_limit(simulation):
    found = deviation(observe(simulation), client_limit=1)["deviation"]
    assert {row["client"] for row in found["pairs"]} == {0}
