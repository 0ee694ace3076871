"""What gets lost between a server and its nodes."""

import logging
import subprocess
import sys

import pytest

from fedskew import simulate
from tests.helpers import assert_trees_close

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.superlink.grid import InMemoryGrid

from fedskew.flower import Rules, client_app, post, roll
from fedskew.flower.server import federate
from tests.flower.in_process import RUN as DIGITS
from tests.flower.in_process import THREE, Nodes, in_order_of

RUN = DIGITS.model_copy(update={"algorithm": "fedlc+scaffold"})
REFIT = RUN.model_copy(update={"algorithm": "fedlc+refit:asks=3", "rounds": 1})
AGAIN = "node 101, client 1, works on nothing and its reply has not come: it is called again"


class Clock:
    """Time that passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    for module in (post, roll):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Losing(Nodes):
    """Of the messages to node 101 of a kind, or of the replies to them, so many are lost after so many others."""

    def __init__(self, run, kind, losses=1, *, replies=False, after=0):
        super().__init__(client_app(run), THREE)
        self.kind, self.losses, self.replies, self.after = kind, losses, replies, after

    def _push(self, message):
        meta = message.metadata
        if (meta.dst_node_id, meta.message_type) != (101, self.kind):
            return super()._push(message)
        self.after -= 1
        if self.after >= 0 or self.losses == 0:
            return super()._push(message)
        self.losses -= 1
        if self.replies:
            self._replies.pop(super()._push(message))
        else:
            meta.__dict__["_message_id"] = f"lost{self.losses}"
        return meta.message_id


def called(grid, kind, node=101):
    """How often a node has received a message of a kind."""
    return sum((m.metadata.dst_node_id, m.metadata.message_type) == (node, kind) for m in grid.messages)


def check_nothing_is_missing(federated, run):
    *_, expected = simulate(run)
    assert len(federated.update.loss) == 3
    params = in_order_of(federated.server.params, expected.server.params)
    assert_trees_close(params, expected.server.params, rtol=0, atol=1e-6)


@pytest.mark.parametrize("replies", [False, True])
@pytest.mark.parametrize("losses", [1, 2])
def test_a_call_that_is_lost_is_sent_again(replies, losses, caplog):
    grid = Losing(RUN, "train", losses, replies=replies)
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(grid, RUN, Rules())
    check_nothing_is_missing(federated, RUN)
    assert caplog.messages.count(AGAIN) == losses
    assert called(grid, "train") == RUN.rounds + (losses if replies else 0)


@pytest.mark.parametrize("replies", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_an_ask_of_a_readout_that_is_lost_is_sent_again(replies, first, caplog):
    """The first, which brings the model, or a later one."""
    grid = Losing(REFIT, "query.readout", replies=replies, after=first)
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(grid, REFIT, Rules())
    assert AGAIN in caplog.messages
    *_, expected = simulate(REFIT)
    assert_trees_close(federated.server.readout, expected.server.readout, rtol=1e-3, atol=1e-3)


def test_a_node_that_was_never_asked_to_join_is_asked_again():
    grid = Losing(RUN, "query")
    check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert called(grid, "query") == 1


def test_a_question_that_is_lost_is_asked_again(caplog):
    class LosingBoth(Losing):
        questions = 0

        def _push(self, message):
            if (message.metadata.dst_node_id, message.metadata.message_type) == (101, "query"):
                self.questions += 1
                if self.questions == 2:  # the first that is not about joining
                    return "lost"
            return super()._push(message)

    grid = LosingBoth(RUN, "train")
    with caplog.at_level(logging.WARNING, "flwr"):
        check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert grid.questions == 3
    assert caplog.messages.count(AGAIN) == 1


class Slow(Nodes):
    """What node 101 replies in round 1 can be pulled after so many tries, and nothing that it replies later before."""

    def __init__(self, run, tries):
        super().__init__(client_app(run), THREE)
        self.tries, self.held = tries, list[str]()

    def _push(self, message):
        key = super()._push(message)
        if message.metadata.dst_node_id == 101 and (self.held or message.metadata.message_type == "train"):
            self.held.append(key)
        return key

    def pull_messages(self, message_ids):
        (key,) = message_ids
        if key in self.held and self.tries > 0:
            self.tries -= 1
            return []
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("tries", range(1, 8))
def test_a_node_that_still_works_is_not_called_again(tries, caplog):
    """Also if its reply comes between the server's look for it and the answer to the question."""
    grid = Slow(RUN, tries)
    with caplog.at_level(logging.WARNING, "flwr"):
        check_nothing_is_missing(federate(grid, RUN, Rules(resend_after=0.1)), RUN)
    assert AGAIN not in caplog.messages
    assert called(grid, "train") == RUN.rounds


class Timed(Nodes):
    """Nodes that work on one message at a time, so many seconds on each call to train, perhaps more in the first round.
    In one round the first call to every node, or to one, is lost. One node may fail at once."""

    def __init__(self, run, clock, seconds, *, lost_in=0, lost_by=(100, 101, 102), at_first=None, failing=None):
        super().__init__(client_app(run), THREE)
        self.clock, self.seconds, self.lost_in = clock, {1: seconds if at_first is None else at_first}, lost_in
        self.later, self.failing, self.lost_by = seconds, failing, lost_by
        self.lost, self.asked = set[int](), list[tuple[int, float]]()
        self.due, self.free = dict[str, float](), dict[int, float]()

    def _push(self, message):
        meta, config = message.metadata, message.content.config_records["config"]
        node = meta.dst_node_id
        if meta.message_type == "query":
            self.asked.append((node, self.clock.now))
        elif config["round"] == self.lost_in and node in self.lost_by and node not in self.lost:
            self.lost.add(node)
            meta.__dict__["_message_id"] = f"lost{node}"
            return meta.message_id
        key = super()._push(message)
        works = 0.0 if meta.message_type == "query" else self.seconds.get(config["round"], self.later)
        if works and node == self.failing:
            works, self._replies[key] = 1.0, Message(Error(ErrorCode.UNKNOWN, "no memory"), reply_to=message)
        self.free[node] = self.due[key] = max(self.clock.now, self.free.get(node, 0.0)) + works
        return key

    def pull_messages(self, message_ids):
        (key,) = message_ids
        return super().pull_messages(message_ids) if self.due.get(key, 0.0) <= self.clock.now else []

    @property
    def questions(self):
        """The nodes that were asked after they had joined, and when."""
        return self.asked[len(THREE) :]


@pytest.mark.parametrize(
    ("seconds", "lost_in", "asked_after"), [(5, 1, 60), (5, 2, 60), (100, 2, 300), (600, 1, 60), (600, 2, 1800)]
)
def test_if_every_call_of_a_round_is_lost_all_are_called_again(seconds, lost_in, asked_after, clock, caplog):
    """The slowest reply of the rounds before says how long a call may take; in the first round there is none."""
    grid = Timed(RUN, clock, seconds, lost_in=lost_in)
    with caplog.at_level(logging.WARNING, "flwr"):
        check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert sum("it is called again" in text for text in caplog.messages) == 3
    began = (lost_in - 1) * seconds
    first = [when for _, when in grid.questions if when > began + 1][:3]
    assert first == pytest.approx([began + asked_after] * 3, abs=3)
    assert clock.now == pytest.approx(RUN.rounds * seconds + asked_after, abs=5)


def test_nodes_that_all_take_long_are_asked_twice_in_the_first_round_alone(clock, caplog):
    grid = Timed(RUN, clock, 1000)
    with caplog.at_level(logging.WARNING, "flwr"):
        check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert not any("it is called again" in text for text in caplog.messages)
    assert sorted(node for node, _ in grid.questions) == [100, 100, 101, 101, 102, 102]
    assert [when for _, when in grid.questions] == pytest.approx([60] * 3 + [180] * 3, abs=2)
    assert clock.now == pytest.approx(2000, abs=2)


@pytest.mark.parametrize(("lost_in", "lost_by"), [(3, (100, 101, 102)), (2, (101,))])
def test_a_slow_first_round_does_not_make_the_server_wait_in_later_ones(lost_in, lost_by, clock):
    """The replies of the round before count, or those of the same one."""
    run = RUN.model_copy(update={"rounds": 3})
    grid = Timed(run, clock, 10, lost_in=lost_in, lost_by=lost_by, at_first=1300)
    check_nothing_is_missing(federate(grid, run, Rules()), run)
    assert clock.now == pytest.approx(1300 + 10 + 60 + 10, abs=3)


def test_a_node_that_fails_at_once_is_no_measure_of_the_others(clock):
    run = RUN.model_copy(update={"rounds": 3})
    grid = Timed(run, clock, 1000, failing=102)
    federate(grid, run, Rules(min_clients=2))
    assert [when for _, when in grid.questions if when < 999] == pytest.approx([60] * 2 + [180] * 2, abs=2)
    assert not [when for node, when in grid.questions if when > 1000 and node != 102]


def test_the_time_that_a_lost_call_took_is_no_measure_of_replies(clock):
    """The calls of the first round are lost, and then those of the second as well: no node waits longer for it."""
    grid = Timed(RUN, clock, 5, lost_in=1)
    push = grid._push

    def losing_more(message):
        if message.metadata.message_type == "train" and grid.lost_in == 1 and clock.now > 65:
            grid.lost_in, grid.lost = 2, set()
        return push(message)

    grid._push = losing_more
    check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert clock.now == pytest.approx(2 * (60 + 5), abs=3)


def test_a_reply_that_comes_just_before_the_time_is_up_counts(clock):
    """Also if the server looks for it only afterwards."""
    check_nothing_is_missing(federate(Timed(RUN, clock, 0.5), RUN, Rules(round_timeout=0.5)), RUN)


class HandedOver(Nodes):
    """Flower forgets a reply when it hands it over. Here the connection breaks at that moment, for so many replies of a
    kind."""

    def __init__(self, run, kind, losses):
        super().__init__(client_app(run), THREE)
        self.kind, self.losses, self.gone = kind, losses, set()

    def pull_messages(self, message_ids):
        (key,) = message_ids
        if key in self.gone:
            unknown = Message(RecordDict(), 101, self.kind)
            unknown.metadata.__dict__["_message_id"] = key
            return [Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "no such message"), reply_to=unknown)]
        found = super().pull_messages(message_ids)
        mine = any((m.metadata.src_node_id, m.metadata.message_type) == (101, self.kind) for m in found)
        if mine and len(self.gone) < self.losses:
            self.gone.add(key)
            raise httpx.ReadError("connection reset by peer")
        return found


@pytest.mark.parametrize(("kind", "losses"), [("train", 1), ("train", 3), ("query", 1), ("query", 2)])
def test_a_reply_that_is_lost_when_it_is_handed_over_is_asked_for_again(kind, losses):
    grid = HandedOver(RUN, kind, losses)
    check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert len(grid.gone) == losses
    assert called(grid, kind) == (RUN.rounds if kind == "train" else 1) + losses


def test_a_call_is_sent_again_three_times_at_most(caplog):
    grid = HandedOver(RUN, "train", 4)
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(grid, RUN, Rules())
    assert federated.absorbed == {0: 2, 1: 2, 2: 2}
    assert caplog.messages.count(AGAIN) == 3
    assert any("round 1: the reply of node 101, client 1, is refused: error 3" in text for text in caplog.messages)


def test_the_error_of_a_copy_is_the_clients(caplog):
    class Failing(Losing):
        def _push(self, message):
            if self.losses == 0 and message.metadata.dst_node_id == 101 and message.metadata.message_type == "train":
                message.content["config"]["run"] = "another"  # the client refuses it
            return super()._push(message)

    run = RUN.model_copy(update={"rounds": 1})
    with caplog.at_level(logging.WARNING, "flwr"):
        federated = federate(Failing(run, "train"), run, Rules())
    assert federated.absorbed == {0: 1, 2: 1}
    assert any("round 1: the reply of node 101, client 1, is refused: error 2" in text for text in caplog.messages)


class Late(Nodes):
    """Node 101 answers the first question after some seconds, and the next ones one after the other."""

    def __init__(self, run, clock, seconds):
        super().__init__(client_app(run), THREE)
        self.clock, self.seconds, self.due, self.free = clock, seconds, {}, 0.0

    def _push(self, message):
        key = super()._push(message)
        if message.metadata.dst_node_id == 101 and message.metadata.message_type == "query":
            self.free = self.due[key] = max(self.clock.now, self.free) + self.seconds
        return key

    def pull_messages(self, message_ids):
        (key,) = message_ids
        return super().pull_messages(message_ids) if self.due.get(key, 0.0) <= self.clock.now else []


@pytest.mark.parametrize("seconds", [50, 130, 590])
def test_a_node_that_answers_late_joins_with_its_first_answer(clock, seconds):
    grid = Late(RUN, clock, seconds)
    check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert clock.now == pytest.approx(seconds, abs=2)
    assert called(grid, "query") == 1 + (seconds > 120)


def test_a_node_does_not_load_flowers_database():
    """It may be a process per message."""
    loaded = "import sys, fedskew.flower; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_a_simulation_by_flower_is_not_asked():
    """It works on several messages to a node at once."""
    assert post.patience_with(InMemoryGrid.__new__(InMemoryGrid), 60.0) == float("inf")
    assert post.patience_with(Nodes(client_app(RUN), THREE), 60.0) == 60.0


class Broken(Nodes):
    """Every second call of the SuperLink fails."""

    calls = 0

    def _fail(self):
        self.calls += 1
        if self.calls % 2:
            raise httpx.ReadError("EOF occurred in violation of protocol (_ssl.c:2437)")

    def get_node_ids(self):
        self._fail()
        return super().get_node_ids()

    def push_messages(self, messages):
        self._fail()
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        self._fail()
        return super().pull_messages(message_ids)


def test_a_connection_that_breaks_is_tried_again(caplog):
    grid = Broken(client_app(RUN), THREE)
    with caplog.at_level(logging.WARNING, "flwr"):
        check_nothing_is_missing(federate(grid, RUN, Rules()), RUN)
    assert any("cannot be reached, trying again in 1 s: EOF occurred" in text for text in caplog.messages)


def test_a_superlink_that_is_gone_ends_the_run():
    class Gone(Nodes):
        def get_node_ids(self):
            raise httpx.ConnectError("no route to host")

    with pytest.raises(httpx.ConnectError, match="no route to host"):
        federate(Gone(client_app(RUN), THREE), RUN, Rules())
