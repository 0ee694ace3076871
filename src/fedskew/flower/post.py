"""Messages to nodes and their replies.

Flower hands a message over once. If the connection breaks at that moment, the message or its reply is lost, while the
node stays online and both sides wait. A node works on one message at a time, so a node that answers a question no
longer works on the call before it: that call is sent again. Training on it again gives the same reply.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import TypeVar

import httpx
from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedskew.flower.messages import CONFIG

POLL_SECONDS = 0.3
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries to reach the SuperLink."""
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


def question(run_hash: str, node: int) -> Message:
    """Asks a node which client of a run it is."""
    return Message(RecordDict({CONFIG: ConfigRecord({"run": run_hash})}), node, MessageType.QUERY)


@dataclass
class Asked:
    """A question to a node, with the key of the answer. Each time it is asked again it may take twice as long."""

    key: str | None = None
    since: float = field(default_factory=lambda: time.monotonic())
    times: int = 0

    def overdue(self, patience: float) -> bool:
        return time.monotonic() - self.since > patience * (1 << self.times)

    def again(self, key: str | None) -> "Asked":
        return Asked(key, times=self.times + 1)


@dataclass
class _Call:
    """A message whose reply is awaited under a key."""

    message: Message
    key: str
    asked: Asked = field(default_factory=Asked)

    @property
    def node(self) -> int:
        return self.message.metadata.dst_node_id

    def reply(self, grid: Grid) -> Message | None:
        try:
            found = pulled(grid, self.key)
        except ValueError as error:
            return Message(Error(0, str(error)), reply_to=self.message)
        if found is None or found.metadata.reply_to_message_id == self.message.metadata.message_id:
            return found
        given: Error | RecordDict = found.error if found.has_error() else found.content
        return Message(given, reply_to=self.message)  # the reply to a copy

    def is_lost(self, grid: Grid, run_hash: str, patience: float) -> bool:
        """Whether its node is known to work on nothing. If it takes long, the node is asked, and answers later."""
        if self.asked.key is not None and _answered(grid, self.asked.key):
            return True
        if self.asked.overdue(patience):
            ((key, _),) = pushed(grid, [question(run_hash, self.node)])
            self.asked = self.asked.again(key)
        return False

    def send_again(self, grid: Grid) -> None:
        log(WARNING, "node %s works on nothing and has not replied: it is called again", self.node)
        copy = Message(self.message.content, self.node, self.message.metadata.message_type)
        ((key, _),) = pushed(grid, [copy])
        self.key, self.asked = key or self.key, self.asked.again(None)


def exchange(
    grid: Grid, messages: Sequence[Message], run_hash: str, *, seconds: float, patience: float
) -> list[Message]:
    """Send messages and collect replies, until all have arrived or the time is up.

    A node is asked whether it still works on its call once it has taken `patience` seconds, and three times as long as
    the slowest that replied.
    """
    waiting = [_Call(sent, key) for key, sent in pushed(grid, messages) if key]
    began = time.monotonic()
    replies, slowest = list[Message](), float("inf")
    while waiting and time.monotonic() < began + seconds:
        left = list[_Call]()
        for call in waiting:
            reply = call.reply(grid)
            if reply is None and call.is_lost(grid, run_hash, max(patience, 3 * slowest)):
                reply = call.reply(grid)  # if it came just before the answer
                if reply is None:
                    call.send_again(grid)
            if reply is None:
                left.append(call)
            else:
                replies.append(reply)
        if len(left) < len(waiting):
            slowest = time.monotonic() - began
        waiting = left
        time.sleep(POLL_SECONDS if waiting else 0)
    return replies


def with_nodes(sent: Iterable[Message], replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """Replies with the nodes that were asked for them."""
    nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
    for reply in replies:
        yield nodes.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id), reply


def _answered(grid: Grid, key: str) -> bool:
    try:
        return pulled(grid, key) is not None
    except ValueError:
        return True


def _steadily(call: Callable[[], T]) -> T:
    """Flower itself tries again if the SuperLink does not answer, but not after an error of TLS or of the SuperLink."""
    for seconds in PAUSES:
        try:
            return call()
        except httpx.HTTPError as error:
            log(WARNING, "the SuperLink cannot be reached, trying again in %.0f s: %s", seconds, short(error))
            time.sleep(seconds)
    return call()
