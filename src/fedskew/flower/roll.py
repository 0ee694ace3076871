"""Who is who: which node is which client. A node is asked when it comes, and again where its word is in doubt."""

import time
from collections.abc import Sequence
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedskew.flower.messages import CONFIG

POLL_SECONDS = 0.3


def pushed(grid: Grid, messages: Sequence[Message]) -> list[tuple[str | None, Message]]:
    """Messages with the keys of their replies; None for one whose node is gone."""
    keys = list(grid.push_messages(messages))
    if len(keys) != len(messages):
        raise RuntimeError(f"Flower took {len(keys)} of {len(messages)} messages; a model may be too large for it")
    return list(zip(keys, messages, strict=True))


def pulled(grid: Grid, key: str) -> Message | None:
    """The reply to a message, by itself, so that one that cannot be read costs no other; it is a ValueError then."""
    try:
        return next(iter(grid.pull_messages([key])), None)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"a reply that cannot be read: {type(error).__name__}: {error}") from error


def short(text: object) -> str:
    """What somebody else has written, for a line of a log."""
    words = " ".join(str(text).split())
    return words if len(words) <= 300 else f"{words[:300]} ..."


class Roll:
    """Claims of nodes to be a client. Of two nodes that claim the same one, the first that is there has it."""

    def __init__(self, run_hash: str, clients: int) -> None:
        self._hash, self._clients = run_hash, clients
        self._claims = dict[int, int]()
        self._refused = dict[int, str]()
        self._asked = dict[str, int]()
        self._doubted = set[int]()

    def call(self, grid: Grid, *, again: bool = True) -> dict[int, int]:
        """The node of each client that is there now; nodes not seen before, and if `again` those that were refused, are
        asked, and counted once they answer."""
        there = set(grid.get_node_ids())
        self._hear(grid)
        self._claims = {node: client for node, client in self._claims.items() if node in there}
        self._refused = {node: reason for node, reason in self._refused.items() if node in there}
        known = {*self._claims, *self._asked.values(), *(() if again else self._refused)} - self._doubted
        self._ask(grid, sorted(there - known))
        self._doubted.clear()
        nodes = dict[int, int]()
        for node, client in self._claims.items():
            nodes.setdefault(client, node)
        return nodes

    def wait(self, grid: Grid, seconds: float) -> dict[int, int]:
        """Until every client is there, or for so long."""
        end, told = time.monotonic() + seconds, None
        while len(nodes := self.call(grid, again=False)) < self._clients and (left := end - time.monotonic()) > 0:
            if len(nodes) != told:
                told = len(nodes)
                log(INFO, "%s of %s clients are there, waiting up to %.0f s", told, self._clients, left)
            time.sleep(POLL_SECONDS)
        return nodes

    def doubt(self, node: int) -> None:
        """Ask a node anew before the next round: what it said may not hold any more."""
        self._doubted.add(node)

    @property
    def problems(self) -> str:
        """What was wrong with nodes that are not counted."""
        return "".join(f"; node {node}: {reason}" for node, reason in self._refused.items())

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = {CONFIG: ConfigRecord({"run": self._hash})}
        messages = [Message(RecordDict(dict(content)), node, MessageType.QUERY) for node in nodes]
        if messages:
            self._asked |= {key: sent.metadata.dst_node_id for key, sent in pushed(grid, messages) if key}

    def _hear(self, grid: Grid) -> None:
        for number, node in list(self._asked.items()):
            try:
                reply = pulled(grid, number)
                if reply is None:
                    continue
                client = self._claimed(reply)
            except ValueError as error:
                del self._asked[number]
                self._claims.pop(node, None)
                self._refused[node] = short(error)
                log(WARNING, "node %s is refused: %s", node, short(error))
                continue
            del self._asked[number]
            self._refused.pop(node, None)
            if self._claims.get(node) == client:
                continue
            self._claims.pop(node, None)
            if client in self._claims.values():
                log(WARNING, "node %s is refused as long as another node is client %s, which it claims", node, client)
            self._claims[node] = client

    def _claimed(self, reply: Message) -> int:
        if reply.has_error():
            raise ValueError((reply.error.reason or "").strip())
        about: dict[str, Any] = dict(reply.content.config_records.get(CONFIG, {}))
        client = about.get("client")
        if about.get("run") != self._hash:
            raise ValueError(f"it has run {about.get('run')}, allowed: {self._hash}")
        if not isinstance(client, int) or not 0 <= client < self._clients:
            raise ValueError(f"its client is {client!r}; allowed: a number from 0 to {self._clients - 1}")
        return client
