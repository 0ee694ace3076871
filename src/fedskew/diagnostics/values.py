"""Numbers that JSON can hold."""

import math
from typing import Any

from torch import Tensor

_DIGITS = 6


def plain(value: Any) -> Any:
    """Numbers, lists and tensors with six significant digits; None for what is not finite."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
