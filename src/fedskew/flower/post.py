"""Messages to nodes and their replies.

Flower hands a message and its reply over once. If a connection breaks at that moment, or a node is killed and soon
started again, it is lost, while the node is online and both sides wait. A node works on one message at a time, oldest
first, so one that answers a question no longer works on the call before it: that call is sent again. Training on it
again gives the same reply. Flower's simulation loses nothing, and works on several messages to a node at once, so it is
not asked.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import TypeVar

import httpx
from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from fedskew.flower.messages import CONFIG, FILES

POLL_SECONDS = 0.3
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries to reach the SuperLink."""
MOST_QUESTIONS, MOST_COPIES = 2, 3
"""How often a node is asked about one call, and how often a call is sent again."""
T = TypeVar("T")


def short(text: object) -> str:
    """Text from another machine, for a line of a log."""
    words = " ".join(str(text).split())
    return words if len(words) <= 300 else f"{words[:300]} ..."


def present(grid: Grid) -> set[int]:
    """The nodes that are online."""
    return set(_steadily(grid.get_node_ids))


def pushed(grid: Grid, messages: Sequence[Message]) -> list[tuple[str | None, Message]]:
    """Messages with the keys of their replies; None for one whose node is gone."""
    keys = list(_steadily(lambda: grid.push_messages(messages)))
    if len(keys) != len(messages):
        raise RuntimeError(
            f"Flower accepted {len(keys)} of {len(messages)} messages; the model may be too large for it"
        )
    return list(zip(keys, messages, strict=True))


def pulled(grid: Grid, key: str) -> Message | None:
    """The reply to one message, read separately so that an unreadable reply, a ValueError, affects no other."""
    try:
        return next(iter(_steadily(lambda: grid.pull_messages([key]))), None)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"the reply cannot be read: {type(error).__name__}: {error}") from error


def question(run_hash: str, node: int, files: str = "") -> Message:
    """Asks a node which client of a run it is."""
    about = ConfigRecord({"run": run_hash, **({FILES: files} if files else {})})
    return Message(RecordDict({CONFIG: about}), node, MessageType.QUERY)


def is_lost(reply: Message) -> bool:
    """Whether Flower has handed this reply over before, or never received the whole of it."""
    lost = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
    return reply.has_error() and reply.error.code in lost


def patience_with(grid: Grid, seconds: float) -> float:
    """How long a node may take before it is asked."""
    from flwr.superlink.grid import InMemoryGrid  # brings a database along, which nodes, a process per message, spare

    return float("inf") if isinstance(grid, InMemoryGrid) else seconds


@dataclass
class Asked:
    """The questions to a node that it has not answered, by the keys of the answers. A node may be slow, so the second
    one comes later, and an answer to either counts."""

    keys: tuple[str, ...] = ()
    since: float = field(default_factory=lambda: time.monotonic())

    def overdue(self, patience: float) -> bool:
        waited = time.monotonic() - self.since
        return len(self.keys) < MOST_QUESTIONS and waited > patience * (1 + len(self.keys))

    def again(self, key: str) -> "Asked":
        return Asked((*self.keys, key))


@dataclass
class _Call:
    """A message whose reply is awaited under its key or that of a copy, the last of which was `sent` when it says."""

    message: Message
    keys: list[str]
    asked: Asked = field(default_factory=Asked)
    copies: int = 0
    sent: float = field(default_factory=lambda: time.monotonic())

    @property
    def node(self) -> int:
        return self.message.metadata.dst_node_id

    def reply(self, grid: Grid) -> Message | None:
        """The first that comes."""
        for key in list(self.keys):
            try:
                found = pulled(grid, key)
            except ValueError as error:
                return Message(Error(0, str(error)), reply_to=self.message)
            if found is not None and is_lost(found) and self.copies < MOST_COPIES:
                self.keys.remove(key)
            elif found is not None:
                return self._as_reply(found)
        return None

    def _as_reply(self, found: Message) -> Message:
        """The reply to a copy as one to the message."""
        if found.metadata.reply_to_message_id == self.message.metadata.message_id:
            return found
        given: Error | RecordDict = found.error if found.has_error() else found.content
        return Message(given, reply_to=self.message)

    def look(self, grid: Grid, run_hash: str, patience: float) -> bool:
        """Whether the call or its reply is known to be lost. If it takes long, the node is asked, and answers later."""
        if self.copies == MOST_COPIES:
            return False
        if not self.keys or any(_answered(grid, key) for key in self.asked.keys):
            return True
        if self.asked.overdue(patience):
            ((key, _),) = pushed(grid, [question(run_hash, self.node)])
            self.asked = self.asked.again(key) if key else Asked(self.asked.keys)
        return False

    def send_again(self, grid: Grid) -> None:
        client = self.message.content.config_records[CONFIG]["client"]
        said = "node %s, client %s, works on nothing and its reply has not come: it is called again"
        log(WARNING, said, self.node, client)
        copy = Message(self.message.content, self.node, self.message.metadata.message_type)
        ((key, _),) = pushed(grid, [copy])
        self.keys += [key] if key else []
        self.asked, self.copies, self.sent = Asked(), self.copies + 1, time.monotonic()


class Post:
    """Sends the messages of a run's server and collects the replies to them, for so many `seconds` at most.

    A node is asked whether it still works on its call once it has taken `patience` seconds, and three times as long as
    the slowest reply to a message of that kind: of those sent together with it or, while nobody has replied to these,
    of those sent before. The first messages have no such measure. To ask too early does no harm: a node answers once it
    is done, before its next call, and no more than `MOST_QUESTIONS` questions wait for it.
    """

    def __init__(self, run_hash: str, seconds: float, patience: float) -> None:
        self._hash, self._seconds, self._patience = run_hash, seconds, patience
        self._slowest = dict[str, float]()

    def exchange(self, grid: Grid, messages: Sequence[Message]) -> list[Message]:
        """The replies to messages of one kind, once all have arrived or the time is up; those that are there count."""
        kind = next((message.metadata.message_type for message in messages), "")
        waiting = [_Call(sent, [key]) for key, sent in pushed(grid, messages) if key]
        end, patience = time.monotonic() + self._seconds, patience_with(grid, self._patience)
        replies, times, earlier = list[Message](), list[float](), self._slowest.get(kind, 0.0)
        while waiting:
            left, slowest = list[_Call](), max(times, default=earlier)
            for call in waiting:
                reply = call.reply(grid)
                if reply is None and call.look(grid, self._hash, max(patience, 3 * slowest)):
                    reply = call.reply(grid)  # if it came just before the answer
                    if reply is None:
                        call.send_again(grid)
                if reply is None:
                    left.append(call)
                else:
                    replies.append(reply)
                    times += [] if reply.has_error() else [time.monotonic() - call.sent]
            waiting = left if time.monotonic() < end else []
            time.sleep(POLL_SECONDS if waiting else 0)
        self._slowest[kind] = max(times, default=earlier)
        return replies


def with_nodes(sent: Iterable[Message], replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """Replies with the nodes that were asked for them."""
    nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
    for reply in replies:
        yield nodes.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id), reply


def _answered(grid: Grid, key: str) -> bool:
    """Whether there is, or was, an answer."""
    try:
        return pulled(grid, key) is not None
    except ValueError:
        return True


def _steadily(call: Callable[[], T]) -> T:
    """Flower itself tries again if the SuperLink does not answer, but not after an error of TLS or of the SuperLink."""
    for seconds in PAUSES:
        try:
            return call()
        except (httpx.HTTPError, ObjectPushError) as error:
            log(WARNING, "the SuperLink cannot be reached, trying again in %.0f s: %s", seconds, short(error))
            time.sleep(seconds)
    return call()
