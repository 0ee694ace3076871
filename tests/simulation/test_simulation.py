import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedskew import Run, simulate
from fedskew.core.round import server_update
from fedskew.diagnostics.observing import observe
from fedskew.simulation import simulation
from fedskew.simulation.plan import Plan, build_federation
from fedskew.simulation.session import simulate_many
from fedskew.simulation.simulation import Simulation
from tests.helpers import assert_trees_close

SMALL = {"dataset": "synthetic:1,1,max_size=100", "clients": 5, "batch_size": 16}


def test_records_come_one_by_one_and_stop_when_nobody_asks():
    records = simulate(Run(**SMALL, rounds=10**6))
    assert [next(records).round for _ in range(3)] == [1, 2, 3]
    records.close()


def test_one_seed_drives_everything_so_methods_share_data_model_and_cohorts():
    sims = [Simulation(Run(**SMALL, clients_per_round=2, algorithm=name)) for name in ("fedavg", "fedlc+scaffold")]
    a, b = sims
    assert torch.equal(a.federation.dataset.x_train, b.federation.dataset.x_train)
    assert all(torch.equal(a.server.params[name], b.server.params[name]) for name in a.server.params)
    assert all((a.cohort(r).clients == b.cohort(r).clients).all() for r in range(1, 10))
    other = Simulation(Run(**SMALL, seed=1))
    assert not torch.equal(a.server.params["linear.weight"], other.server.params["linear.weight"])


def test_cohorts_are_fair_and_have_no_repetition():
    simulation = Simulation(Run(**{**SMALL, "clients": 10}, clients_per_round=3))
    drawn = [simulation.cohort(round).clients for round in range(1, 1001)]
    assert all(len(set(cohort.tolist())) == 3 for cohort in drawn)
    share = np.bincount(np.concatenate(drawn), minlength=10) / 1000
    assert np.abs(share - 0.3).max() < 0.06


def test_clients_that_never_answer():
    simulation = Simulation(Run(**{**SMALL, "clients": 10}, dropout_rate=0.4))
    answered = np.mean([len(simulation.cohort(round).clients) for round in range(1, 1001)])
    assert answered == pytest.approx(6, abs=0.2)


def test_a_round_in_which_nobody_answers_changes_nothing():
    for engine in ("serial", "stacked"):
        run = Run(**SMALL, dropout_rate=0.99, rounds=3, engine=engine, algorithm="fedlc+scaffold")
        before = Simulation(run).server.params
        silent = [record for record in simulate(run) if record.clients == 0]
        assert silent
        assert silent[0].round == 1
        assert silent[0].train_loss is None
        assert all(torch.equal(before[name], silent[0].server.params[name]) for name in before)


def test_evaluation_rounds():
    records = list(simulate(Run(**SMALL, rounds=25, eval_every=6)))
    assert [r.round for r in records if r.accuracy is not None] == [6, 12, *range(16, 26)]


def test_how_often_we_look_does_not_change_what_we_see():
    often, seldom = (list(simulate(Run(**SMALL, rounds=15, eval_every=n)))[-1] for n in (1, 15))
    assert often.accuracy == seldom.accuracy
    assert all(torch.equal(often.server.params[n], seldom.server.params[n]) for n in often.server.params)


def test_probes_only_look():
    seen = []

    def probe(observation):
        seen.append(observation.round)
        return {"norm": float(observation.update.delta["linear.weight"].norm())}

    run = Run(**SMALL, rounds=4, algorithm="scaffold")
    watched = list(simulate(run, [probe], every=2))
    plain = list(simulate(run))
    assert seen == [2, 4]
    assert watched[1].probes["norm"] > 0
    assert watched[0].probes == {}
    with pytest.raises(ValueError, match="every is 0; allowed: 1 or more"):
        next(simulate(run, [probe], every=0))
    assert all(torch.equal(watched[-1].server.params[n], plain[-1].server.params[n]) for n in plain[-1].server.params)


def test_a_diverging_run_says_so_and_ends():
    records = list(simulate(Run(**SMALL, rounds=50, lr=1e38, momentum=0.9)))
    assert records[-1].diverged
    assert len(records) < 50
    assert not math.isfinite(records[-1].loss)
    assert records[-1].as_dict()["loss"] is None


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_finite_model_whose_outputs_overflow_has_diverged(engine):
    (record,) = simulate(Run(dataset="digits", model="mlp", clients=4, lr=1e9, rounds=1, engine=engine))
    assert all(leaf.isfinite().all() for leaf in record.server.params.values())
    assert math.isnan(record.loss)
    assert record.diverged


def test_a_model_whose_statistics_are_not_finite_has_diverged(monkeypatch):
    run = Run(dataset="digits", model="cnn:padding=1,width=4", clients=2, rounds=3)
    (plain, *_), before = list(simulate(run)), simulation.conclude
    assert not plain.diverged

    def overflowing(*given):
        server = before(*given)
        return replace(server, buffers={name: leaf / 0 for name, leaf in server.buffers.items()})

    monkeypatch.setattr(simulation, "conclude", overflowing)
    (record,) = simulate(run)
    assert record.diverged


def test_a_mask_that_is_infinite_from_the_start_is_no_divergence():
    class Masked(torch.nn.Linear):
        def __init__(self):
            super().__init__(60, 10)
            self.register_buffer("mask", torch.tensor([0.0] * 9 + [-math.inf]))

        def forward(self, x):
            return super().forward(x) + self.mask.clamp(min=-9)

    records = list(simulate(Run(**SMALL, model=Masked, rounds=2)))
    assert [record.diverged for record in records] == [False, False]
    assert records[-1].server.buffers["mask"][-1] == -math.inf


def test_a_failure_names_round_and_client(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        "def broken():\n    def loss(logits, labels, counts):\n"
        "        raise RuntimeError('my own mistake')\n    return loss\n"
    )
    mistake = r"broken\.py, line 3, in loss: RuntimeError: my own mistake"
    with pytest.raises(RuntimeError, match=f"round 1, client 0: {mistake}"):
        list(simulate(Run(**SMALL, algorithm=f"{file}:broken", engine="serial", rounds=1)))
    with pytest.raises(RuntimeError, match=f"round 1, clients 0, 1, 2, 3, 4: {mistake}"):
        list(simulate(Run(**SMALL, algorithm=f"{file}:broken", engine="stacked", rounds=1)))


def test_only_seeds_may_differ_when_runs_go_together():
    with pytest.raises(ValueError, match="only in their seed"):
        next(simulate_many([Run(**SMALL), Run(**SMALL, lr=0.5)]))


def test_a_model_of_the_users_own(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "import math\nfrom torch import nn\n"
        "def net(input_shape, num_classes, hidden: int = 16):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), hidden), nn.BatchNorm1d(hidden),\n"
        "        nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, num_classes))\n"
    )
    run = Run(clients=4, model=f"{file}:net,hidden=8", rounds=2, lr=0.1, batch_size=32)
    first, second = (list(simulate(run))[-1] for _ in range(2))
    assert first.engine == "serial"
    assert all(torch.equal(first.server.params[n], second.server.params[n]) for n in first.server.params)
    assert int(first.server.buffers["2.num_batches_tracked"]) > 0
    with pytest.raises(ValueError, match="stacked cannot run a module with its own batch norm or dropout"):
        list(simulate(run.model_copy(update={"engine": "stacked"})))


def test_bad_federations_are_refused():
    with pytest.raises(ValueError, match="shards"):
        build_federation(Run(partition="shards:100", clients=20))
    with pytest.raises(ValueError, match="min_size"):
        build_federation(Run(partition="dirichlet:0.01,min_size=70"))
    with pytest.raises(ValueError, match="digits does not say which client has which example"):
        build_federation(Run(partition="natural"))


def test_a_device_that_is_not_there():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ValueError, match="no CUDA device"):
        next(simulate(Run(device="cuda")))


def test_reduced_precision_trains():
    plain, low = (list(simulate(Run(rounds=10, lr=0.1, batch_size=16, precision=p)))[-1] for p in ("fp32", "bf16"))
    assert low.server.params["linear.weight"].dtype == torch.float32
    assert abs(plain.accuracy - low.accuracy) < 0.1


def test_natural_clients_are_those_of_the_file_and_must_be_as_many_as_asked_for(tmp_path):
    file = tmp_path / "own.npz"
    x, y = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y, client=np.arange(30) % 5)
    with pytest.raises(ValueError, match="has 5 clients; clients is 20"):
        build_federation(Run(dataset=f"npz:{file}", partition="natural", model="logistic", clients=20))
    run = Run(dataset=f"npz:{file}", partition="natural", model="logistic", rounds=1, clients_per_round="40%")
    assert (run.clients, run.clients_per_round) == (5, 2)
    assert build_federation(run).num_clients == 5
    assert run.replace(partition="iid").clients == 5
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(ValueError, match="does not say which client has which example"):
        build_federation(Run(dataset=f"npz:{file}", partition="natural", model="logistic"))


def test_a_users_file_runs_once_and_prints_to_standard_error(tmp_path, capsys):
    file = tmp_path / "loud.py"
    file.write_text("print('hello')\nfrom fedskew import fedlc\n\ndef loud():\n    return fedlc(2.0)\n")
    list(simulate(Run(**SMALL, algorithm=f"{file}:loud", rounds=1)))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


def test_a_users_factory_that_fails_says_so(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def bad():\n    return {}['x']\n")
    with pytest.raises(ValueError, match="failed: KeyError: 'x'"):
        Run(**SMALL, algorithm=f"{file}:bad")


def test_a_cohort_may_be_in_any_order():
    simulation = Simulation(Run(**SMALL, algorithm="fednova", precision="fp64"))
    ends = []
    for clients in ([4, 0, 2], [0, 2, 4]):
        seen = observe(simulation, clients=np.array(clients))
        ends.append(seen.after.params)
    assert_trees_close(*ends)


def test_another_number_of_epochs_is_weighed_as_such():
    simulation = Simulation(Run(**SMALL, algorithm="fednova", momentum=0.9, precision="fp64"))
    seen = observe(simulation, local_epochs=3)
    weights = seen.cohort.weights("samples")
    expected = server_update(simulation.algorithm, seen.before, seen.update, weights)
    assert_trees_close(seen.after.params, expected.params)


def test_a_rounds_seconds_include_waiting_for_the_device(monkeypatch):
    """A GPU works on after its commands were given; whether the model is finite is known when it is done."""
    now, finite = 0.0, Plan.finite

    def waiting(plan, server):
        nonlocal now
        now += 7.0
        return finite(plan, server)

    monkeypatch.setattr(Plan, "finite", waiting)
    monkeypatch.setattr(simulation.time, "perf_counter", lambda: now)
    assert [record.seconds for record in simulate(Run(**SMALL, rounds=2))] == [7.0, 7.0]
