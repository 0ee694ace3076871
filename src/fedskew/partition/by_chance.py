"""No skew: a random order of all samples, cut evenly."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedskew.partition.owners import classes, collect, even


@dataclass(frozen=True)
class Iid:
    """Every client gets n/m samples, to within one, drawn without regard to the label."""

    def __call__(self, labels: Tensor, num_clients: int, generator: np.random.Generator) -> list[Tensor]:
        number, _ = classes(labels, num_clients)
        owner = np.repeat(np.arange(num_clients, dtype=np.int64), even(len(number), num_clients))
        return collect(generator.permutation(owner), num_clients)
