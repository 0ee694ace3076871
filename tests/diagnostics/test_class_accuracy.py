import copy
import json

import numpy as np
import pytest

from fedskew import Run, Store, simulate
from fedskew.core import tree
from fedskew.diagnostics.kinds import kinds
from fedskew.diagnostics.observing import from_folder, observe
from fedskew.paper.trained import before_after
from fedskew.runs.store import StoreError
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import assert_trees_close, assert_trees_equal, clones

RUN = {
    "dataset": "digits",
    "model": "mlp",
    "partition": "dirichlet:0.1",
    "clients": 5,
    "rounds": 20,
    "lr": 0.1,
    "batch_size": 16,
}


def after(passed, **changes):
    simulation = Simulation(Run(**{**RUN, **changes}))
    for _ in range(passed):
        advance([simulation])
    return simulation


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": "fedlc", "model": "cnn:padding=1,width=8"},
        {"algorithm": "scaffold", "weighting": "uniform"},
        {"algorithm": "fedopt", "engine": "serial", "lr_schedule": "exponential:0.9"},
    ],
)
def test_before_is_the_global_model_and_aggregated_is_the_next_round(changes):
    simulation = after(3, clients_per_round=3, **changes)
    last = simulation.evaluate(now=True)
    effect = before_after(simulation)
    assert effect["before"] == last.per_class_accuracy
    assert effect["accuracy"]["before"] == last.accuracy
    (record,) = advance([simulation])
    assert effect["aggregated"] == record.per_class_accuracy
    assert effect["accuracy"]["aggregated"] == record.accuracy
    assert effect["round"] == record.round - 1


@pytest.mark.parametrize("algorithm", [None, "fedlc", "scaffold"])
def test_looking_changes_nothing(algorithm):
    watched, plain = after(2, algorithm="scaffold"), after(2, algorithm="scaffold")
    attributes = copy.copy(vars(watched))
    params = clones(watched.server.params)
    before_after(watched, algorithm=algorithm, local_epochs=2)
    assert all(vars(watched)[name] is value for name, value in attributes.items())
    assert_trees_equal(watched.server.params, params)
    for _ in range(2):
        (a,), (b,) = advance([watched]), advance([plain])
        assert_trees_equal(a.server.params, b.server.params)
        assert a.accuracy == b.accuracy
    for one, other in zip(watched.states.dump(), plain.states.dump(), strict=True):
        if isinstance(one, dict):
            assert_trees_equal(one, other)


def test_another_algorithm_differs_in_the_local_update_alone():
    simulation = after(5, local_epochs=3)
    one, other = (before_after(simulation, algorithm=name) for name in ("fedavg", "fedlc:tau=3"))
    assert one["before"] == other["before"]
    assert [row["counts"] for row in one["clients"]] == [row["counts"] for row in other["clients"]]
    assert one["mean_after"] != other["mean_after"]
    assert (one["algorithm"], other["algorithm"]) == ("fedavg", "fedlc:tau=3")
    assert before_after(simulation) == one


def test_an_engine_that_keeps_its_step_takes_the_other_algorithm_too():
    deltas = []
    for engine in ("serial", "graphed"):
        simulation = after(1, engine=engine, precision="fp64")
        deltas.append(observe(simulation, algorithm="fedlc:tau=3").update.delta)
    assert_trees_close(*deltas, rtol=0, atol=1e-9)


def test_a_correction_starts_afresh_under_another_algorithm():
    simulation = after(2, algorithm="fedavg")
    local = observe(simulation, algorithm="scaffold")
    assert_trees_equal(local.before.params, simulation.server.params)
    assert all(not leaf.any() for leaf in local.cohort.states.values())
    assert local.cohort.states


def test_missing_classes_fall_and_calibration_holds_some_of_them():
    simulation = after(15, local_epochs=5)
    groups = {name: before_after(simulation, algorithm=name)["groups"] for name in ("fedavg", "fedlc:tau=3")}
    plain = groups["fedavg"]["missing"]
    assert plain["after"] < plain["before"] - 0.05
    assert groups["fedavg"]["majority"]["after"] >= groups["fedavg"]["majority"]["before"]
    assert groups["fedlc:tau=3"]["missing"]["after"] > plain["after"]


def test_the_limit_cuts_what_is_reported_and_not_what_is_aggregated():
    simulation = after(2)
    whole, cut = before_after(simulation), before_after(simulation, client_limit=2)
    assert cut["clients"] == whole["clients"][:2]
    assert cut["aggregated"] == whole["aggregated"]
    assert sum(group["pairs"] for group in cut["groups"].values()) == 2 * 10
    np.testing.assert_allclose(cut["mean_after"], np.mean([row["after"] for row in cut["clients"]], 0))


def test_a_given_clients_update_is_that_of_its_cohort():
    simulation = after(2, engine="serial")
    every, one = observe(simulation), observe(simulation, clients=np.array([3]))
    assert_trees_equal(tree.rows(one.update.delta, 0), tree.rows(every.update.delta, 3))


def test_results_are_plain_numbers():
    effect = before_after(after(1))
    assert json.loads(json.dumps(effect)) == effect


def test_kinds():
    assert kinds([6, 2, 0, 4]) == {"majority": [0, 3], "minority": [1], "missing": [2]}
    assert kinds([5]) == {"majority": [0], "minority": [], "missing": []}
    assert kinds([2, 2]) == {"majority": [0, 1], "minority": [], "missing": []}


def test_one_client_has_no_average_to_speak_of():
    effect = before_after(after(1, clients=1, partition="iid"))
    assert effect["mean_after"] == effect["clients"][0]["after"] == effect["aggregated"]
    assert effect["groups"]["missing"] == {"pairs": 0, "before": None, "after": None, "aggregated": None}


def test_a_round_without_answers_is_passed_over():
    simulation = Simulation(Run(**RUN, dropout_rate=0.99))
    answered = [round for round in range(1, 500) if len(simulation.cohort(round).clients)]
    assert answered[0] > 1
    assert observe(simulation).round == answered[0]
    with pytest.raises(ValueError, match="no client answers in rounds 1 to 1000"):
        before_after(Simulation(Run(**RUN, dropout_rate=1 - 1e-12)))
    with pytest.raises(ValueError, match="clients is empty"):
        observe(simulation, clients=np.array([], int))


def test_from_a_stored_run(tmp_path):
    run = Run(**{**RUN, "rounds": 4}, algorithm="scaffold")
    store = Store(tmp_path)
    records = list(simulate(run, store=store))
    folder = store.folder(run.hash)
    before = {file.name: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
    simulation = from_folder(folder)
    assert simulation.round == 4
    assert before_after(simulation)["before"] == records[-1].per_class_accuracy
    assert before_after(simulation) == before_after(after(4, algorithm="scaffold", rounds=4))
    assert {file.name: file.read_bytes() for file in folder.path.iterdir() if file.is_file()} == before
    folder.checkpoint.unlink()
    with pytest.raises(StoreError, match="no checkpoint"):
        from_folder(folder)
