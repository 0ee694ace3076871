"""The data sets of several seeds in one pair of tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset

Examples = tuple[Dataset, Tensor, Tensor]
"""A data set to normalise with, and all training examples and labels."""


@dataclass
class Pool:
    """Caches the last data sets that it joined; a single one is not copied."""

    _joined: tuple[list[Dataset], Tensor, Tensor] | None = field(default=None, repr=False)

    def __call__(self, datasets: Sequence[Dataset]) -> tuple[Dataset, list[int], Tensor, Tensor]:
        """One of them (they are normalised alike), where each begins, and all training examples and labels."""
        distinct = list({id(data): data for data in datasets}.values())
        if self._joined is None or [id(d) for d in self._joined[0]] != [id(d) for d in distinct]:
            whole = tree.concatenate([{"x": data.x_train, "y": data.y_train} for data in distinct])
            self._joined = distinct, whole["x"], whole["y"]
        starts = np.cumsum([0, *(len(data.y_train) for data in distinct)]).tolist()
        begins = {id(data): start for data, start in zip(distinct, starts, strict=False)}
        return distinct[0], [begins[id(data)] for data in datasets], *self._joined[1:]
