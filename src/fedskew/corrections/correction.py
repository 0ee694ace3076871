"""The base class of corrections: every method here is FedAvg's, and a correction overrides what it changes."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedskew.core.tree import Params
from fedskew.core.view import Context, Sums


@dataclass(frozen=True)
class Correction:
    """Corrects the local gradient. It may keep a state for each client and one on the server.

    `needs_travel` means that it uses how far a client's optimiser moves under a unit gradient. `pull` is the strength
    mu of a term mu (w - anchor) in `bend`, which shortens that travel. `reveals` says what its messages disclose about
    a client; a correction without messages discloses no more than the model.
    """

    needs_travel: ClassVar[bool] = False
    reveals: ClassVar[str] = ""

    @property
    def pull(self) -> float:
        return 0.0

    def client_state(self, params: Params) -> Params:
        """The state of a client that was never sampled."""
        return {}

    def server_state(self, params: Params) -> Params:
        """The server's initial state, which is sent to clients with the model."""
        return {}

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        """The gradient to step along at `params`."""
        return grads

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        """A client's delta, state and message after its last step."""
        return delta, {}, {}

    def weigh(self, weights: Tensor) -> Tensor:
        """The weight of each client's message: by default that of its delta."""
        return weights

    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        """The server's state after a round. `sums` holds the mean message and the aggregated delta of the clients that
        answered, which are the share `fraction` of all clients by `weigh`. It may use only sums, because a cohort may
        be split over machines."""
        return server

    def shift(self, server: Params) -> Params:
        """What the server's new state adds to the next global model."""
        return {}
