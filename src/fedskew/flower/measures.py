"""What an `evaluate` of the user's own returns, checked before a round is recorded with it."""

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import Any

from fedskew.core.evaluation import Evaluation

_ROUNDING = 1e-6
"""By how much a share may miss its range, as a mean of float32 numbers does."""


def checked(measured: object) -> Evaluation | None:
    """The measures as plain numbers, also if they were those of NumPy or of PyTorch. Any of them may be NaN."""
    if measured is None:
        return None
    if not isinstance(measured, Evaluation):
        raise ValueError(f"evaluate returned {measured!r}; allowed: an Evaluation, or None")
    of_class, of_client = measured.per_class_accuracy, measured.client_accuracy
    if isinstance(of_class, Mapping | str) or not hasattr(of_class, "__len__") or getattr(of_class, "ndim", 1) != 1:
        raise ValueError(f"evaluate: per_class_accuracy is {of_class!r}; allowed: a list, with a number for each class")
    return replace(
        measured,
        accuracy=_share("accuracy", measured.accuracy),
        balanced_accuracy=_share("balanced_accuracy", measured.balanced_accuracy),
        loss=_number("loss", measured.loss),
        per_class_accuracy=[None if share is None else _share("per_class_accuracy", share) for share in of_class],
        client_accuracy=None if of_client is None else _share("client_accuracy", of_client),
    )


def _share(name: str, value: Any) -> float:
    share = _number(name, value)
    if not (isnan(share) or -_ROUNDING <= share <= 1 + _ROUNDING):
        raise ValueError(f"evaluate: {name} is {share}; allowed: 0 to 1")
    return share if isnan(share) else min(max(share, 0.0), 1.0)


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, str | bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"evaluate: {name} is {value!r}; allowed: a number") from error
