"""A federation inside one process: a grid whose nodes are a ClientApp called with a context each."""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedskew import Run
from fedskew.core.tree import Params

RUN = Run(dataset="digits", partition="dirichlet:0.3", clients=3, rounds=2, lr=0.1, batch_size=32, engine="serial")
THREE = [{"partition-id": client} for client in range(3)]
"""The configurations of its nodes."""
Change = Callable[[Message], Message | None]


class Nodes(Grid):
    """`change` sees every reply of a node on its way to the server; None means that it is lost."""

    def __init__(self, app: ClientApp, configs: Sequence[dict], change: Change = lambda reply: reply) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # messages carry them
        self.app, self.change = app, change
        self.contexts = {100 + i: Context(1, 100 + i, config, RecordDict(), {}) for i, config in enumerate(configs)}
        self.messages: list[Message] = []
        self._numbers, self._replies = count(1), dict[str, Message]()

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        random.random()  # as Flower does for its pauses
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def _push(self, message: Message) -> str:
        key = str(next(self._numbers))
        message.metadata.__dict__["_message_id"] = key
        self.messages.append(message)
        try:
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:
            reply = Message(Error(2, str(error)), reply_to=message)
        self.messages.append(reply)
        if (changed := self.change(reply)) is not None:
            self._replies[key] = changed
        return key

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def in_order_of(tree: Params, other: Params) -> Params:
    """A file keeps its leaves by name."""
    assert tree.keys() == other.keys()
    return {name: tree[name] for name in other}
