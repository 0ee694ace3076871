"""What bends the local gradient.

A correction has a state per client and one on the server, both begun by `init`:
`grad` changes a client's gradient at each local step; `finish` closes the client's round and writes its message;
`absorb` folds the messages (stacked on the first axis) of the share `fraction` of all clients into the server's state;
it may use nothing but their mean, and may be given that mean alone, so a cohort can be split over machines.
`needs_travel` says that `finish` divides by how far the optimiser moves under a unit gradient.
"""

from typing import Protocol

from torch import Tensor

from fedskew.corrections.control_variates import control_variates
from fedskew.corrections.none import none
from fedskew.corrections.proximal import proximal
from fedskew.tree import Params


class Correction(Protocol):
    @property
    def needs_travel(self) -> bool: ...

    def init(self, params: Params) -> Params: ...

    def grad(self, grads: Params, params: Params, anchor: Params, client: Params, server: Params) -> Params: ...

    def finish(self, client: Params, server: Params, delta: Params, travel: Tensor) -> tuple[Params, Params]: ...

    def absorb(self, server: Params, messages: Params, fraction: float) -> Params: ...


__all__ = ["Correction", "control_variates", "none", "proximal"]
