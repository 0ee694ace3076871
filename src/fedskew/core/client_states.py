"""What corrections remember about each client between rounds, kept only for clients seen so far."""

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.federation import Ints
from fedskew.core.tree import Params


class ClientStates:
    """Rows of one growing tensor per leaf. Row 0 is the state that every client starts from."""

    def __init__(self, initial: Params) -> None:
        self._rows = tree.map(lambda leaf: leaf.unsqueeze(0).clone(), initial)
        self._slots: dict[int, int] = {}

    @property
    def any(self) -> bool:
        """Whether there is anything to remember."""
        return bool(self._rows)

    def gather(self, clients: Ints) -> Params:
        """States of some clients, stacked."""
        if not self._rows:
            return {}
        return tree.rows(self._rows, self._places([self._slots.get(client, 0) for client in clients.tolist()]))

    def put(self, clients: Ints, states: Params) -> None:
        """Remember new states, stacked in the order of the clients."""
        if not self._rows:
            return
        for client in clients.tolist():
            self._slots.setdefault(client, len(self._slots) + 1)
        self._grow(len(self._slots) + 1)
        places = self._places([self._slots[client] for client in clients.tolist()])
        for name, leaf in self._rows.items():
            leaf.index_copy_(0, places, states[name])

    def _places(self, slots: list[int]) -> Tensor:
        device = next(iter(self._rows.values())).device
        return torch.tensor(slots, dtype=torch.int64).to(device, non_blocking=True)

    def _grow(self, needed: int) -> None:
        have = len(next(iter(self._rows.values())))
        if needed > have:
            room = max(needed, 2 * have) - have
            self._rows = tree.map(lambda leaf: torch.cat([leaf, leaf.new_zeros(room, *leaf.shape[1:])]), self._rows)

    def dump(self) -> tuple[Tensor, Params]:
        """The clients seen and their states, for a checkpoint."""
        clients = torch.tensor([*self._slots], dtype=torch.int64)  # NumPy gives an empty array a stride of 0
        return clients, self.gather(clients.numpy())
