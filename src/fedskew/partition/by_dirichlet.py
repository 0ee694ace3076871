"""Distribution-based label skew: D(b) of the FedLC paper (Zhang et al. 2022)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedskew.core.checks import check_number
from fedskew.partition.owners import Ints, classes, collect, deal, whole

_TRIES = 1000
FAIR = "fair"


@dataclass(frozen=True)
class Dirichlet:
    """Per class c, shares p ~ Dir_m(b); the shuffled class is cut at floor(cumsum(p) * n_c).

    With `balance`, a client that already holds n/m samples gets share 0 of the next class and the other shares are
    renormalised; if all would be 0, the class is cut by p as drawn. Classes come in ascending order (`on`, as in
    NIID-Bench: the first are held by more clients than the last), or in a new random order in every draw (`fair`).
    Shares are drawn again until every client has `min_size` samples.
    """

    b: float
    balance: bool | str = True
    min_size: int = 10

    def __post_init__(self) -> None:
        check_number("dirichlet: b", self.b, above=True)
        if not isinstance(self.balance, bool) and self.balance != FAIR:
            raise ValueError(f"dirichlet: balance is {self.balance!r}; allowed: on (True), off (False), {FAIR}")
        whole("dirichlet: min_size", self.min_size)

    def __call__(self, labels: Tensor, num_clients: int, generator: np.random.Generator) -> list[Tensor]:
        number, sizes = classes(labels, num_clients)
        self._check(num_clients, len(number))
        best = 0
        for _ in range(_TRIES):
            pieces = self._draw(num_clients, sizes, generator)
            smallest = int(pieces.sum(1).min())
            if smallest >= self.min_size:
                return collect(deal(number, pieces, generator), num_clients)
            best = max(best, smallest)
        lower = f"min_size={best}, " if best else ""
        raise ValueError(
            f"dirichlet:{self.b:g} over {num_clients} clients: in {_TRIES} tries the smallest client never "
            f"had min_size={self.min_size} samples (at best {best}); use {lower}fewer clients or a larger b"
        )

    def _draw(self, num_clients: int, sizes: Ints, generator: np.random.Generator) -> Ints:
        """How many samples of each class each client gets, [clients, classes]."""
        shares = self._shares((len(sizes), num_clients), generator)
        order = generator.permutation(len(sizes)) if self.balance == FAIR else np.arange(len(sizes))
        pieces = np.zeros((num_clients, len(sizes)), dtype=np.int64)
        held = np.zeros(num_clients, dtype=np.int64)
        full = sizes.sum() / num_clients
        for label, size in zip(order, sizes[order], strict=True):
            total = np.cumsum(np.where(held < full, shares[label], 0.0) if self.balance else shares[label])
            if not total[-1] > 0:
                total = np.cumsum(shares[label])
            # Divided by its last entry the sum ends in exactly 1: no sample is lost, and a share of 0 gets none.
            cuts = np.floor(total / total[-1] * size).astype(np.int64)
            pieces[:, label] = np.diff(cuts, prepend=0)
            held += pieces[:, label]
        return pieces

    def _shares(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.float64]:
        """p ~ Dir_m(b) for every class, [classes, clients]."""
        num_classes, num_clients = shape
        shares = generator.dirichlet(np.full(num_clients, self.b), size=num_classes)
        # If floats under- or overflow, take the limit of b towards 0 (one client) or infinity (all equal).
        lost = np.flatnonzero(~(shares.sum(1) > 0))
        shares[lost] = 0.0 if self.b < 1 else 1.0
        shares[lost, generator.integers(num_clients, size=len(lost))] = 1.0
        return shares

    def _check(self, num_clients: int, samples: int) -> None:
        if num_clients * self.min_size > samples:
            needed, clients = num_clients * self.min_size, samples // self.min_size
            fewer = f", or at most {clients} clients" if clients else ""
            raise ValueError(
                f"min_size={self.min_size} for {num_clients} clients needs {needed} samples, but "
                f"there are {samples}; use min_size={samples // num_clients} or less{fewer}"
            )
