"""Who is who: which node is which client. Every node is asked once, and may come late."""

import time
from logging import WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedskew.flower.messages import CONFIG

POLL_SECONDS = 0.3


class Roll:
    """Claims of nodes to be a client. Of two nodes that claim the same one, the first that is there has it."""

    def __init__(self, run_hash: str, clients: int) -> None:
        self._hash, self._clients = run_hash, clients
        self._claims = dict[int, int]()
        self._refused = dict[int, str]()
        self._asked = dict[str, int]()

    def call(self, grid: Grid) -> dict[int, int]:
        """The node of each client that is there now; nodes not seen before are asked, and counted once they answer."""
        there = set(grid.get_node_ids())
        self._hear(grid)
        self._claims = {node: client for node, client in self._claims.items() if node in there}
        self._refused = {node: reason for node, reason in self._refused.items() if node in there}
        self._ask(grid, sorted(there - {*self._claims, *self._refused, *self._asked.values()}))
        nodes = dict[int, int]()
        for node, client in self._claims.items():
            nodes.setdefault(client, node)
        return nodes

    def wait(self, grid: Grid, seconds: float) -> dict[int, int]:
        """Until every client is there, or for so long."""
        end = time.monotonic() + seconds
        while len(nodes := self.call(grid)) < self._clients and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return nodes

    @property
    def problems(self) -> str:
        """What was wrong with nodes that are not counted."""
        return "".join(f"; node {node}: {reason}" for node, reason in self._refused.items())

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        content = {CONFIG: ConfigRecord({"run": self._hash})}
        messages = [Message(RecordDict(dict(content)), node, MessageType.QUERY) for node in nodes]
        if messages:
            self._asked |= dict(zip(grid.push_messages(messages), nodes, strict=True))

    def _hear(self, grid: Grid) -> None:
        for reply in grid.pull_messages(list(self._asked)) if self._asked else ():
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                client = self._claimed(reply)
            except ValueError as error:
                self._refused[node] = str(error)
                log(WARNING, "node %s is refused: %s", node, error)
                continue
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
