"""How many bytes a federation would send for a run: the arrays in the messages of `flower/messages.py`.

Down, each sampled client gets the model, its buffers and what the server's correction remembers (SCAFFOLD's control
variate). Up, each client that answers sends its model, its buffers and its correction's message.

A readout fits in every measured round. Once for a fit, every client gets the model and its buffers; then each ask takes
the layer to be tried down to every client, and its gradient back. In a federation the model counts for absent clients
too, and the gradient also if an ask got no valid answer.

Leaves count at the size of their type, 4 bytes per number in fp32. Frozen parameters are not sent. Names, headers,
numbers beside the arrays and compression are left out, and so is a model that nodes are sent to measure it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from fedskew.core import tree
from fedskew.data import facts
from fedskew.runs.run import Run
from fedskew.simulation.plan import Plan
from fedskew.simulation.records import RoundRecord


@dataclass(frozen=True)
class BytesSent:
    """Bytes of each round: from the server to all clients together, and back. `fits` is the part of both that a
    readout's fit in this round sent.
    """

    down: tuple[int, ...]
    up: tuple[int, ...]
    fits: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.down) + sum(self.up)

    @property
    def with_last_fit(self) -> int:
        """The total without the fits before the last: they were made only because their rounds were measured."""
        made = [fit for fit in self.fits if fit]
        return self.total - sum(made[:-1])


def bytes_sent(run: Run, records: Sequence[RoundRecord]) -> BytesSent:
    """The traffic of a run's rounds. A sampled client that does not answer has still been sent the model."""
    known = facts(run.dataset, run.seed, run.clients, run.data_dir)
    plan = Plan.of(run, known)
    server = plan.start("cpu")
    down = tree.nbytes([server.params, server.buffers, server.correction])
    up = tree.nbytes([server.params, server.buffers, plan.message_like(server)])
    begun = run.clients * tree.nbytes([server.params, server.buffers])
    layer = tree.nbytes([plan.fitted(server, known)])
    back = [record.asked * layer for record in records]
    there = [begun + asked if asked else 0 for asked in back]
    return BytesSent(
        down=tuple(run.clients_per_round * down + fit for fit in there),
        up=tuple(record.clients * up + fit for record, fit in zip(records, back, strict=True)),
        fits=tuple(map(add, there, back)),
    )
