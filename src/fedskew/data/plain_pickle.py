"""Read the pickles of the Python version of CIFAR without running any code in them."""

import pickle
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedskew.core.files import reason


class ByteArray:
    """Stands for a numpy array while it is unpickled: bytes with a shape, and nothing else."""

    array: NDArray[np.uint8]

    def __init__(self, *begun: Any) -> None:
        self.array = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_Kind", bool, bytes]) -> None:
        _, shape, kind, by_columns, raw = state
        if kind.name != "u1" or by_columns:
            raise pickle.UnpicklingError("it has an array that is not of bytes stored row by row")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape)


class _Kind:
    """Stands for a numpy dtype."""

    def __init__(self, name: bytes | str = "", *flags: Any) -> None:
        self.name = as_text(name)

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment do not matter for bytes."""


class _Plain(pickle._Unpickler):
    """Containers, strings, numbers and arrays of bytes; a pickle that asks for anything else is refused.

    It uses the unpickler written in Python: the one in C fills gigabytes when a damaged pickle gives an object a huge
    number.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks to load {module}.{name}, which is refused")
        return _KNOWN[module, name]


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): ByteArray,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Kind,
}


def unpickle_plain(where: str, stream: IO[bytes]) -> dict[str, Any]:
    """A pickled dictionary of plain values, with string keys."""
    try:
        return {as_text(key): value for key, value in _Plain(stream, encoding="bytes").load().items()}
    except Exception as error:
        raise ValueError(f"{where} is not a plain CIFAR pickle: {reason(error)}") from error


def as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
