"""What corrections remember about each client between rounds, kept only for clients seen so far."""

import numpy as np
import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.federation import Ints
from fedskew.core.tree import Params


class ClientStates:
    """Rows of one growing tensor per leaf. Row 0 is the state that every client starts from."""

    def __init__(self, initial: Params) -> None:
        self._rows = tree.map(lambda leaf: leaf.unsqueeze(0).clone(), initial)
        self._seen = np.zeros(0, np.int64)  # clients in order of their rows
        self._row_of = np.zeros(0, np.int64)  # of each client by its number, 0 until it is seen

    @property
    def any(self) -> bool:
        """Whether there is anything to remember."""
        return bool(self._rows)

    def gather(self, clients: Ints) -> Params:
        """States of some clients, stacked."""
        if not self._rows:
            return {}
        return tree.rows(self._rows, self._places(clients))

    def put(self, clients: Ints, states: Params) -> None:
        """Remember new states, stacked in the order of the clients."""
        if not self._rows:
            return
        new = clients[self._found(clients) == 0]
        self._row_of[new] = np.arange(len(new)) + len(self._seen) + 1
        self._seen = np.concatenate([self._seen, new])
        self._grow(len(self._seen) + 1)
        places = self._places(clients)
        for name, leaf in self._rows.items():
            leaf[places] = states[name]

    def _found(self, clients: Ints) -> Ints:
        """The rows of clients, 0 for one that is new."""
        unknown = int(clients.max(initial=-1)) + 1 - len(self._row_of)
        if unknown > 0:
            self._row_of = np.pad(self._row_of, (0, unknown))
        return np.asarray(self._row_of[clients])

    def _places(self, clients: Ints) -> Tensor:
        device = tree.first(self._rows).device
        return torch.from_numpy(self._found(clients)).to(device, non_blocking=True)

    def _grow(self, needed: int) -> None:
        have = len(tree.first(self._rows))
        if needed > have:
            room = max(needed, 2 * have) - have
            self._rows = tree.map(lambda leaf: torch.cat([leaf, leaf.new_zeros(room, *leaf.shape[1:])]), self._rows)

    def dump(self) -> tuple[Tensor, Params]:
        """The clients seen and their states, for a checkpoint."""
        clients = torch.tensor(self._seen.tolist(), dtype=torch.int64)  # NumPy gives an empty array a stride of 0
        return clients, self.gather(self._seen)
