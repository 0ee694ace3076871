"""Choices are made on held-out examples alone, with the same tries for all; the test set comes after, once."""

from dataclasses import replace

import pytest

from fedskew import Store
from fedskew.knobs import Choices, Range
from fedskew.runs.measures import end
from fedskew.simulation import session
from fedskew.simulation.tune import Tuning, knobs_for, rungs

DIGITS = {"dataset": "digits", "model": "logistic", "clients": 3, "rounds": 4, "batch_size": 64}
LRS = {"lr": [0.01, 0.1, 1.0]}


def simulated(monkeypatch):
    """Counts the rounds that are computed."""
    done, advance = [], session.advance

    def counted(simulations, probes=()):
        done.extend(simulation.run for simulation in simulations)
        return advance(simulations, probes)

    monkeypatch.setattr(session, "advance", counted)
    return done


def with_scores(monkeypatch, score, diverged=lambda run: False):
    """Runs that are never computed: `score` on held-out examples, and the reverse of it on the test set."""
    seen = []

    def fake(runs, store=None):
        for position, run in enumerate(runs):
            seen.append(run)
            for round in range(1, run.rounds + 1):
                yield position, replace(RECORD, round=round, accuracy=1 - score(run), validation_accuracy=score(run),
                                        diverged=diverged(run))  # fmt: skip

    monkeypatch.setattr(session, "simulate_many", fake)
    return seen


RECORD = session.RoundRecord(
    round=1, accuracy=None, balanced_accuracy=None, loss=None, per_class_accuracy=None, client_accuracy=None,
    train_loss=None, clients=3, seconds=0.0, engine="serial", device="cpu",
)  # fmt: skip


def test_knobs_are_the_methods_own_and_the_learning_rate():
    names = {method: [knob.name for knob in knobs_for(DIGITS, method, {})] for method in ("fedavg", "fedlc", "fedacg")}
    assert names == {"fedavg": ["lr"], "fedlc": ["tau", "lr"], "fedacg": ["lam", "mu", "lr"]}
    assert [knob.name for knob in knobs_for({**DIGITS, "lr": 0.1}, "fedlc:tau=2", {})] == []


def test_values_that_are_given_are_the_only_ones():
    given = {"tau": ["1", "2.0", "2"], "momentum": ["0", "0.9"], "mu": ["1"]}
    tau, lr, momentum = knobs_for(DIGITS, "fedlc", given)
    assert (tau.values, tau.default) == (Choices((1.0, 2.0)), 5.0)
    assert (momentum.values, momentum.default) == (Choices((0.0, 0.9)), 0.0)
    assert isinstance(lr.values, Range)


def test_the_held_out_examples_decide_and_not_the_test_set(monkeypatch, tmp_path):
    seen = with_scores(monkeypatch, lambda run: 0.5 + run.lr / 4)
    tuning = Tuning.of(DIGITS, ["fedavg", "fedlc:tau=1"], LRS, choosing_seeds=2)
    choices = tuning.choose(Store(tmp_path))
    assert [choice.best.values for choice in choices] == [{"lr": 1.0}, {"lr": 1.0}]
    assert [choice.at_an_edge for choice in choices] == [[], []]  # three values do not tell
    assert {run.validation for run in seen} == {0.1}
    assert {run.seed for run in seen} == {0, 1}


@pytest.mark.parametrize(
    ("scores", "edge"),
    [
        ({0.01: 0.1, 0.03: 0.2, 0.1: 0.3, 0.3: 0.4, 1.0: 0.5}, True),
        ({0.01: 0.5, 0.03: 0.4, 0.1: 0.3, 0.3: 0.2, 1.0: 0.1}, True),
        ({0.01: 0.4, 0.03: 0.3, 0.1: 0.2, 0.3: 0.1, 1.0: 0.5}, False),  # the second best is at the other end
        ({0.01: 0.1, 0.03: 0.2, 0.1: 0.3, 0.3: 0.5, 1.0: 0.4}, False),
        ({0.01: 0.1, 0.03: 0.2, 0.1: 0.3, 1.0: 0.5}, False),  # four values do not tell
    ],
)
def test_a_range_is_called_too_narrow_if_accuracy_rises_towards_its_end(monkeypatch, tmp_path, scores, edge):
    with_scores(monkeypatch, lambda run: scores[run.lr])
    (choice,) = Tuning.of(DIGITS, ["fedavg"], {"lr": [*scores]}).choose(Store(tmp_path))
    assert choice.at_an_edge == (["lr"] if edge else [])


def test_what_is_reported_has_fresh_seeds_and_all_examples(monkeypatch, tmp_path):
    with_scores(monkeypatch, lambda run: 0.5)
    tuning = Tuning.of({**DIGITS, "seed": 3}, ["fedavg", "fedlc"], {"lr": [0.2, 0.1]}, choosing_seeds=2, seeds=2)
    runs = tuning.comparison(tuning.choose(Store(tmp_path))).runs
    assert list(runs) == ["fedavg", "fedlc"]
    assert [(run.seed, run.validation, run.lr) for run in runs["fedavg"]] == [(5, 0.0, 0.2), (6, 0.0, 0.2)]
    assert tuning.chosen_with == [3, 4]


def test_a_try_that_diverges_is_never_chosen(monkeypatch, tmp_path):
    with_scores(monkeypatch, lambda run: run.lr / 2, diverged=lambda run: run.lr == 1)
    (choice,) = Tuning.of(DIGITS, ["fedavg"], LRS).choose(Store(tmp_path))
    assert choice.best.values == {"lr": 0.1}
    assert [each.score for each in choice.tries] == [0.005, 0.05, None]


def test_a_method_that_always_diverges_is_left_out(monkeypatch, tmp_path):
    with_scores(monkeypatch, lambda run: 0.5, diverged=lambda run: run.algorithm.startswith("fedlc"))
    tuning = Tuning.of(DIGITS, ["fedavg", "fedlc"], LRS)
    choices = tuning.choose(Store(tmp_path))
    assert list(tuning.comparison(choices).runs) == ["fedavg"]
    with pytest.raises(RuntimeError, match="every try of every method diverged"):
        tuning.comparison(choices[1:])


def test_every_method_has_the_same_number_of_tries():
    tuning = Tuning.of(DIGITS, ["fedavg", "fedlc", "fedacg", "fedlc+scaffold"], budget=6)
    assert [len(choice.tries) for choice in tuning.methods] == [6] * 4
    assert tuning.rounds == 4 * 6 * 4


@pytest.mark.parametrize(
    ("tries", "rounds", "found"),
    [
        (8, 40, [(8, 10), (4, 20), (2, 40)]),
        (5, 40, [(5, 10), (3, 20), (2, 40)]),
        (2, 40, [(2, 40)]),
        (1, 9, [(1, 9)]),
        (8, 2, [(8, 1), (4, 1), (2, 2)]),
    ],
)
def test_rungs_of_halving(tries, rounds, found):
    assert rungs(tries, rounds, halving=True) == found
    assert rungs(tries, rounds, halving=False) == [(tries, rounds)]


def test_halving_goes_on_with_the_better_half(monkeypatch, tmp_path):
    done = simulated(monkeypatch)
    tuning = Tuning.of(DIGITS, ["fedavg"], {"lr": [0.001, 0.01, 0.1, 0.5]}, halving=True)
    (choice,) = tuning.choose(Store(tmp_path))
    assert sorted(each.rounds for each in choice.tries) == [2, 2, 4, 4]
    assert len(done) == 4 * 2 + 2 * 2  # a survivor is continued, not begun again
    assert tuning.rounds == 4 * 2 + 2 * 4
    assert choice.best.rounds == 4
    assert choice.best.score == max(each.score for each in choice.tries if each.rounds == 4)
    scores = {each.values["lr"]: each.score for each in choice.tries}
    assert scores[0.001] < scores[0.5]


def test_halving_keeps_the_better_and_of_equals_those_that_led_before(monkeypatch, tmp_path):
    lrs = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08]
    tuning = Tuning.of(DIGITS, ["fedavg"], {"lr": lrs}, halving=True)
    tried = [each.values["lr"] for each in tuning.methods[0].tries]
    first = dict(zip(tried, (0.5, 0.6, 0.9, 0.8, 0.1, 0.1, 0.1, 0.7), strict=True))
    with_scores(monkeypatch, lambda run: first[run.lr] if run.rounds == 1 else 0.9)
    (choice,) = tuning.choose(Store(tmp_path))
    assert [each.rounds for each in choice.tries] == [1, 2, 4, 4, 1, 1, 1, 2]
    assert choice.best is choice.tries[2]


def test_a_second_call_computes_nothing(monkeypatch, tmp_path):
    store = Store(tmp_path)
    tuning = Tuning.of(DIGITS, ["fedavg", "fedlc"], budget=3)
    first = tuning.choose(store)
    list(session.simulate_groups(tuning.comparison(first).groups, store))
    done = simulated(monkeypatch)
    assert tuning.choose(store) == first
    list(session.simulate_groups(tuning.comparison(first).groups, store))
    assert done == []
    stored = store.folder(first[0].tries[0].runs[0].hash).records()
    assert first[0].tries[0].score == end([(r["round"], r["validation_accuracy"]) for r in stored])


def test_models_of_ones_own_can_be_chosen(tmp_path):
    net = "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "own.py").write_text(net)
    own = f"{tmp_path}/own.py:net"
    (choice,) = Tuning.of({**DIGITS, "lr": 0.1}, ["fedavg"], {"model": ["mlp", own]}).methods
    assert [each.values["model"] for each in choice.tries] == ["mlp", own]
    assert choice.tries[1].runs[0].model == own


@pytest.mark.parametrize(
    ("base", "methods", "values", "more", "words"),
    [
        ({"validation": 0}, ["fedavg"], {}, {}, "validation is 0"),
        ({}, ["fedlc", "fedlc:tau=5"], {}, {}, "fedlc appears twice"),
        ({}, ["fedavg"], {"tau": [1, 2]}, {}, "tau is neither a field of a run nor an argument of fedavg"),
        ({}, ["fedavg"], {"rounds": [1, 2]}, {}, "rounds cannot be tuned"),
        ({}, ["fedavg"], {"partition": ["iid", "shards:2"]}, {}, "partition cannot be tuned"),
        ({}, ["fedavg"], {"lr": []}, {}, "lr has no values"),
        ({}, ["fedavg"], {"lr": ["x"]}, {}, "lr"),
        ({}, ["fedavg"], {}, {"budget": 0}, "budget is 0"),
        ({}, ["fedavg"], {}, {"seeds": 0}, "seeds is 0"),
        ({"lr_schedule": "cosine"}, ["fedavg"], {}, {"halving": True}, "halving continues runs"),
        ({}, ["fedavg"], {"lr_schedule": ["constant", "cosine"]}, {"halving": True}, "halving continues runs"),
    ],
)
def test_a_wrong_request_is_refused_before_any_work(base, methods, values, more, words):
    with pytest.raises(ValueError, match=words):
        Tuning.of({**DIGITS, **base}, methods, values, **more)


def test_a_method_of_ones_own_is_not_named_by_defaults_that_it_did_not_run_with(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def mine(gain: float = 0.5):\n    return lambda logits, labels, counts: gain * labels\n")
    tuning = Tuning.of(DIGITS, [f"{file}:mine", f"{file}:mine,gain=0.5"], budget=2)
    assert [method.name for method in tuning.methods] == ["mine", "mine:gain=0.5"]
