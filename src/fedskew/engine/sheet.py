"""Integers that a captured step reads: one copy to the device per round."""

from math import prod

import numpy as np
import torch
from torch import Tensor

from fedskew.core.federation import Ints


class Sheet:
    """Arrays of fixed shapes side by side, on the host (page-locked for a GPU) and in fixed memory on the device."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], device: torch.device) -> None:
        sizes = [prod(shape) for shape in shapes.values()]
        self._host = torch.zeros(sum(sizes), dtype=torch.int64, pin_memory=device.type == "cuda")
        self._device = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        self._copied = torch.cuda.Event() if device.type == "cuda" else None
        self._arrays: dict[str, Ints] = dict(
            zip(shapes, np.split(self._host.numpy(), np.cumsum(sizes)[:-1]), strict=True)
        )
        parts = zip(shapes.items(), self._device.split(sizes), strict=True)
        self.tensors: dict[str, Tensor] = {name: part.view(shape) for (name, shape), part in parts}

    def write(self, **arrays: Ints) -> None:
        """Write these at the start of their places; the rest becomes zero."""
        if self._copied is not None:
            self._copied.synchronize()  # the last copy may still be reading
        for name, values in arrays.items():
            place = self._arrays[name]
            place[: values.size] = values.ravel()
            place[values.size :] = 0
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._device.device))
