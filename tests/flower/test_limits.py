"""How many examples a node may claim and how far its answer may go: honest clients always, attackers not."""

import logging

import numpy as np
import pytest

from fedskew import Run
from tests.helpers import assert_trees_equal

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules, client_app
from fedskew.flower.limits import CROWD, MULTIPLE, Move, check_reach, learnt, most_examples
from fedskew.flower.server import federate
from fedskew.simulation.plan import Plan
from tests.flower.in_process import Nodes
from tests.flower.test_strategy import RUN, SCAFFOLD, THREE, answers_of, scaled, with_array, with_number

HUGE = 2**63 - 1
FILLED = 3e38


def boasting(examples, run=RUN):
    """More examples, and as many steps as they would be."""

    def change(reply):
        reply.content["metrics"]["num-examples"] = examples
        reply.content["metrics"]["steps"] = int(-(-examples // run.batch_size)) * run.local_epochs
        return reply

    return change


def filled(record):
    return with_array(lambda array: np.full_like(array, FILLED), record)


def lying_when_it_joins(examples):
    """Client 1 claims so many examples from the beginning."""

    def change(reply):
        config = reply.content.config_records.get("config", {}) if reply.has_content() else {}
        if config.get("client") == 1:
            config["num-examples"] = examples
            return reply
        return answers_of(1, 1, boasting(examples))(reply)

    return change


def refusals(caplog, run, change, rules=None):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Nodes(client_app(run), THREE, change), run, rules or Rules())
    return federated, [text for text in caplog.messages if "is refused" in text]


ONE = SCAFFOLD.model_copy(update={"rounds": 1, "model": "cnn:width=4,padding=1"})


@pytest.fixture(scope="module")
def silent():
    """The same round without client 1."""
    grid = Nodes(client_app(ONE), THREE, answers_of(1, 1, lambda reply: None))
    return federate(grid, ONE, Rules(round_timeout=0.1))


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        (boasting(HUGE), f"num-examples is {HUGE}; when the node joined it had 452"),
        (boasting(453), "num-examples is 453; when the node joined it had 452"),
        (with_number("num-examples", 1), "num-examples is 1; when the node joined it had 452"),
        (filled("params"), "its params moved by"),
        (scaled(-1000), "its params moved by"),
        (filled("buffers"), "its buffers moved by"),
        (filled("message"), "its message moved by"),
    ],
)
def test_an_attack_is_refused_by_default_and_leaves_no_trace(attack, problem, caplog, silent):
    attacked, refused = refusals(caplog, ONE, answers_of(1, 1, attack))
    assert len(refused) == 1
    assert "node 101, client 1, is refused" in refused[0]
    assert problem in refused[0]
    assert attacked.absorbed == silent.absorbed == {0: 1, 2: 1}
    for part in ("params", "buffers", "correction"):
        assert_trees_equal(getattr(attacked.server, part), getattr(silent.server, part))


@pytest.mark.parametrize("examples", [HUGE, 1443])
def test_nobody_has_more_examples_than_the_data_set(examples, caplog):
    _, (refused,) = refusals(caplog, RUN.model_copy(update={"rounds": 1}), lying_when_it_joins(examples))
    assert f"num-examples is {examples}; max-examples is auto and allows 1442" in refused


def test_where_the_server_has_no_data_the_others_say_how_many_examples_are_possible():
    assert most_examples(1442, [5, 5]) == 1442
    assert most_examples(None, [30, 500, 20]) == CROWD * 30
    assert most_examples(None, [500]) == CROWD * 500
    assert most_examples(None, []) is None


def test_a_node_whose_data_grow_counts_again_once_it_has_been_asked(caplog):
    """At the start of round 2, by an answer that is read at the start of round 3."""
    run = RUN.model_copy(update={"rounds": 3})
    said = {"joined": 400}

    def grows(reply):
        config = reply.content.config_records.get("config", {}) if reply.has_content() else {}
        if config.get("client") == 1:
            config["num-examples"], said["joined"] = said["joined"], 452
        return reply

    federated, refused = refusals(caplog, run, grows)
    assert [text.partition(":")[0] for text in refused] == ["round 1", "round 2"]
    assert federated.absorbed == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize(
    ("rules", "attack", "problem"),
    [
        ({"max_norm": 50.0}, scaled(1e20), "max-norm allows 50"),
        ({"max_norm": 0.001}, lambda reply: reply, "max-norm allows 0.001"),
        ({"max_examples": 451}, lambda reply: reply, "num-examples is 452; max-examples is 451 and allows 451"),
    ],
)
def test_limits_of_ones_own(rules, attack, problem):
    grid = Nodes(client_app(RUN), THREE[1:2], answers_of(1, 1, attack))
    with pytest.raises(RuntimeError, match=f"client 1, is refused: .*{problem}"):
        federate(grid, RUN, Rules(**rules, start_timeout=0.1, on_bad_reply="fail", min_clients=1))


@pytest.mark.parametrize(("norm", "examples"), [("off", "off"), (0, 0)])
def test_without_limits_anything_finite_is_taken(norm, examples, caplog):
    run = RUN.model_copy(update={"rounds": 1})

    def both(reply):
        return scaled(1e6)(boasting(10**6)(reply))

    federated, refused = refusals(caplog, run, answers_of(1, 1, both), Rules(max_norm=norm, max_examples=examples))
    assert refused == []
    assert federated.absorbed == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize(
    "more",
    [
        {"partition": "shards:1", "clients": 10, "algorithm": "fedavg"},
        {"partition": "dirichlet:0.05,balance=off,min_size=1", "clients": 20, "clients_per_round": 3},
        {"partition": "dirichlet:0.1,balance=off,min_size=1", "clients": 12, "momentum": 0.9, "local_epochs": 3},
        {"dataset": "synthetic:1,1", "partition": "natural", "model": "logistic", "clients": 12},
        {"dataset": "synthetic:1,1", "partition": "natural", "model": "logistic", "algorithm": "fedlc", "clients": 2},
    ],
)
def test_honest_clients_with_extreme_skew_are_never_refused(more):
    run = Run(**{"dataset": "digits", "algorithm": "fedlc+scaffold", "rounds": 8, "lr": 0.1, "batch_size": 32, **more})
    nodes = [{"partition-id": client} for client in range(run.clients)]
    federated = federate(Nodes(client_app(run), nodes), run, Rules(on_bad_reply="fail"))
    assert len(federated.update.loss) == run.clients_per_round


def move(norm, steps=10):
    return Move(steps, {"params": norm})


@pytest.fixture(scope="module")
def server():
    from fedskew.data import facts

    return Plan.of(RUN, facts(RUN.dataset, RUN.seed, RUN.clients)).start()


def allowed(norm, others, server, earlier=None, steps=10):
    try:
        check_reach(move(norm, steps), [move(*other) for other in others], {"params": earlier or 0.0}, server)
    except ValueError:
        return False
    return True


def test_how_far_is_too_far(server):
    others = [(1.0,), (2.0,), (3.0,)]
    assert allowed(2 * MULTIPLE, others, server)
    assert not allowed(2.01 * MULTIPLE, others, server)


def test_one_wild_answer_of_three_condemns_itself_alone(server):
    norms = [1.0, 2.0, 1e39]
    verdicts = [allowed(norm, [(n,) for n in norms if n != norm], server) for norm in norms]
    assert verdicts == [True, True, False]


def test_an_answer_of_nothing_condemns_nobody(server):
    norms = [1.0, 2.0, 0.0]
    assert all(allowed(norm, [(n,) for n in norms if n != norm], server) for norm in norms)


def test_a_client_with_more_steps_goes_farther(server):
    others = [(1.0, 5), (1.0, 5)]
    assert allowed(50 * MULTIPLE, others, server, steps=250)
    assert not allowed(51 * MULTIPLE, others, server, steps=250)
    assert allowed(MULTIPLE, [(1.0, 250), (1.0, 250)], server, steps=1)


def test_earlier_rounds_are_remembered(server):
    """Late in a run most clients of a round may have nothing left to learn."""
    converged = [(1e-6,), (1e-6,), (1e-6,)]
    assert not allowed(1.0, converged, server)
    earlier = learnt({}, [move(0.5), move(1.0), move(1.5)])
    assert earlier == {"params": 1.0}
    assert learnt(earlier, [move(0.1)] * 3) == earlier
    assert learnt(earlier, []) == earlier
    assert allowed(1.0, converged, server, earlier["params"])


def test_with_fewer_than_three_answers_the_model_is_the_measure(server):
    own = float(np.sqrt(sum(float(leaf.double().square().sum()) for leaf in server.params.values())))
    for others in ([], [(1e-9,)]):
        assert allowed(0.99 * own * MULTIPLE, others, server)
        assert not allowed(1.01 * own * MULTIPLE, others, server)


def test_what_was_learnt_is_kept_with_the_run(tmp_path, caplog):
    rules = Rules(store=str(tmp_path))
    first, _ = refusals(caplog, RUN.model_copy(update={"rounds": 1}), lambda reply: reply, rules)
    assert first.reach["params"] > 0
    done, _ = refusals(caplog, RUN.model_copy(update={"rounds": 1}), lambda reply: reply, rules)
    assert done.reach == first.reach
