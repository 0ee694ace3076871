"""How many bytes a federation would send for a run: the arrays in the messages of `flower/messages.py`.

Down, each sampled client gets the model, its buffers and what the server's correction remembers (SCAFFOLD's control
variate). Up, each client that answers sends its model, its buffers and its correction's message. Leaves count at the
size of their type, 4 bytes per number in fp32. Frozen parameters are not sent. Names, headers, compression and the
asks of a readout are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedskew.core import tree
from fedskew.data import facts
from fedskew.runs.run import Run
from fedskew.simulation.plan import Plan
from fedskew.simulation.records import RoundRecord


@dataclass(frozen=True)
class BytesSent:
    """Bytes of each round: from the server to all clients together, and back."""

    down: tuple[int, ...]
    up: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.down) + sum(self.up)


def bytes_sent(run: Run, records: Sequence[RoundRecord]) -> BytesSent:
    """The traffic of a run's rounds. A sampled client that does not answer has still been sent the model."""
    plan = Plan.of(run, facts(run.dataset, run.seed, run.clients, run.data_dir))
    server = plan.start("cpu")
    down = tree.nbytes([server.params, server.buffers, server.correction])
    up = tree.nbytes([server.params, server.buffers, plan.message_like(server)])
    return BytesSent(
        tuple(run.clients_per_round * down for _ in records), tuple(record.clients * up for record in records)
    )
