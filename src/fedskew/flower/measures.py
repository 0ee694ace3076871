"""What an `evaluate` of the user's own returns, checked before a round is recorded with it."""

from dataclasses import replace
from math import isnan
from typing import Any

from fedskew.core.evaluation import Evaluation


def checked(measured: object) -> Evaluation | None:
    """The measures as plain numbers, also if they were those of NumPy or of PyTorch. Any of them may be NaN."""
    if measured is None:
        return None
    if not isinstance(measured, Evaluation):
        raise ValueError(f"evaluate returned {measured!r}; allowed: an Evaluation, or None")
    of_client = measured.client_accuracy
    return replace(
        measured,
        accuracy=_share("accuracy", measured.accuracy),
        balanced_accuracy=_share("balanced_accuracy", measured.balanced_accuracy),
        loss=_number("loss", measured.loss),
        per_class_accuracy=[
            None if share is None else _share("per_class_accuracy", share) for share in measured.per_class_accuracy
        ],
        client_accuracy=None if of_client is None else _share("client_accuracy", of_client),
    )


def _share(name: str, value: Any) -> float:
    share = _number(name, value)
    if not (isnan(share) or 0 <= share <= 1):
        raise ValueError(f"evaluate: {name} is {share}; allowed: 0 to 1")
    return share


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"evaluate: {name} is {value!r}; allowed: a number") from error
