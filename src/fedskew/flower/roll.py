"""Which node is which client, with how many examples.

A node is asked when it joins, and again when its claim is in doubt.
"""

import re
import time
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from fedskew.flower.messages import CONFIG, EXAMPLES, STATES, TESTS
from fedskew.flower.post import POLL_SECONDS, Asked, is_lost, patience_with, present, pulled, pushed, question, short


@dataclass(frozen=True)
class Claim:
    """What a node reports when it joins. `tests` are its test examples; None if the server does not need them. `states`
    are the rounds of its states of the method; None if the method has none."""

    client: int
    examples: int
    tests: int | None = None
    states: frozenset[int] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        tests = "" if self.tests is None else f" and {self.tests or 'no'} test examples"
        return f"client {self.client} with {self.examples} examples{tests}"


class Roll:
    """Claims of nodes to be a client. If two nodes claim the same client, the first one present gets it."""

    def __init__(self, run_hash: str, clients: int, patience: float = 60.0, files: str = "") -> None:
        self._hash, self._clients, self._patience, self._files = run_hash, clients, patience, files
        self._claims = dict[int, Claim]()
        self._refused = dict[int, str]()
        self._asked = dict[int, Asked]()
        self._doubted = set[int]()
        self._entered = list[int]()

    def call(self, grid: Grid, *, again: bool = True) -> dict[int, int]:
        """The node of each client that is present. New nodes, and with `again` refused ones, are asked, and count once
        they answer."""
        there = present(grid)
        self._hear(grid)
        for node in self._claims.keys() - there:
            client = self._claims.pop(node).client
            log(WARNING, "node %s, client %s, has left; started again with its key, it can join now", node, client)
        self._refused = {node: reason for node, reason in self._refused.items() if node in there}
        patience = patience_with(grid, self._patience)
        unanswered = (node for node, asked in self._asked.items() if not asked.overdue(patience))
        known = {*self._claims, *unanswered, *(() if again else self._refused)} - self._doubted
        self._ask(grid, sorted(there - known))
        self._doubted.clear()
        return self.nodes

    @property
    def nodes(self) -> dict[int, int]:
        """The node of each client that was present at the last call."""
        found = dict[int, int]()
        for node, claim in self._claims.items():
            found.setdefault(claim.client, node)
        return found

    @property
    def tested(self) -> dict[int, int]:
        """Those that have test examples, in the order of their clients."""
        return {client: node for client, node in sorted(self.nodes.items()) if self._claims[node].tests}

    def claim(self, node: int) -> Claim | None:
        """What a node said when it joined."""
        return self._claims.get(node)

    @property
    def sizes(self) -> dict[int, int]:
        """How many examples each client has whose node is present."""
        return {client: self._claims[node].examples for client, node in self.nodes.items()}

    def entered(self) -> list[int]:
        """The nodes that have joined, or joined again, since this was last asked."""
        found, self._entered = self._entered, []
        return found

    def claims_of_others(self, node: int) -> list[Claim]:
        return [self._claims[other] for other in self.nodes.values() if other != node]

    def wait(self, grid: Grid, seconds: float) -> dict[int, int]:
        """Wait until every client is present, or until the timeout."""
        end, told = time.monotonic() + seconds, None
        while len(nodes := self.call(grid, again=False)) < self._clients and (left := end - time.monotonic()) > 0:
            if len(nodes) != told:
                told = len(nodes)
                log(INFO, "%s of %s clients have joined, waiting up to %.0f s", told, self._clients, left)
            time.sleep(POLL_SECONDS)
        return self.call(grid, again=False)  # collect the answers of those that were asked last

    def doubt(self, node: int) -> None:
        """Ask a node again before the next round: its claim may no longer hold."""
        self._doubted.add(node)

    @property
    def problems(self) -> str:
        """What was wrong with nodes that are not counted."""
        return "".join(f"; node {node}: {reason}" for node, reason in self._refused.items())

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        for key, sent in pushed(grid, [question(self._hash, node, self._files) for node in nodes]) if nodes else ():
            node = sent.metadata.dst_node_id
            before = Asked() if node in self._doubted else self._asked.get(node, Asked())
            if key:
                self._asked[node] = before.again(key)

    def _hear(self, grid: Grid) -> None:
        for node, asked in list(self._asked.items()):
            try:
                reply = next((found for key in asked.keys if (found := pulled(grid, key)) is not None), None)
                if reply is None:
                    continue
                claim = None if is_lost(reply) else self._claimed(reply)
            except ValueError as error:
                del self._asked[node]
                before, self._refused[node] = self._claims.pop(node, None), short(error)
                known = "" if before is None else f", client {before.client} before,"
                log(WARNING, "node %s%s is refused: %s", node, known, short(error))
                continue
            del self._asked[node]
            if claim is not None:  # else it is asked again
                self._refused.pop(node, None)
                self._enter(node, claim)

    def _enter(self, node: int, claim: Claim) -> None:
        before = self._claims.get(node)
        if before == claim:
            return
        log(INFO, "node %s has joined: %s", node, claim)
        if before is None or before.client != claim.client:
            self._claims.pop(node, None)  # after those that claim the same
            if any(claim.client == other.client for other in self._claims.values()):
                said = "node %s is refused while another node is client %s, which it claims"
                log(WARNING, said, node, claim.client)
        self._claims[node] = claim
        self._entered.append(node)

    def _claimed(self, reply: Message) -> Claim:
        if reply.has_error():
            raise ValueError((reply.error.reason or "").strip())
        about: dict[str, Any] = dict(reply.content.config_records.get(CONFIG, {}))
        client, examples, tests, states = (about.get(name) for name in ("client", EXAMPLES, TESTS, STATES))
        if about.get("run") != self._hash:
            raise ValueError(f"its run is {about.get('run')}; allowed: {self._hash}")
        if not isinstance(client, int) or not 0 <= client < self._clients:
            raise ValueError(f"its client is {client!r}; allowed: a number from 0 to {self._clients - 1}")
        if not isinstance(examples, int) or examples < 1:
            raise ValueError(f"its {EXAMPLES} is {examples!r}; allowed: integers of at least 1")
        if tests is not None and (not isinstance(tests, int) or tests < 0):
            raise ValueError(f"its {TESTS} is {tests!r}; allowed: integers of at least 0")
        if states is not None and not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", str(states)):
            raise ValueError(f"its {STATES} are {short(states)!r}; allowed: rounds, as 3,4")
        kept = None if states is None else frozenset(map(int, filter(None, str(states).split(","))))
        return Claim(client, examples, tests, kept)
