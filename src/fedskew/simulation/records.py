"""The result of a round, and what may observe it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite, isnan
from typing import Any

from fedskew.core.evaluation import Evaluation
from fedskew.core.federation import Cohort
from fedskew.core.round import Server, Update
from fedskew.models import Model
from fedskew.runs.run import Run

_OF_NODES = "measured_by", "measured_on"
"""Only rounds that nodes have measured have these."""


@dataclass(frozen=True)
class RoundRecord:
    """The result of a round. Measures are None in rounds that are not evaluated. A round has `diverged` if the model
    after it is not finite, or says nothing: its loss on the test set is not a number. `seconds` are those of training
    and of a readout's fit, without evaluation. `asked` is how many gradients a readout asked clients for. `measured_by`
    are the clients of a federation whose nodes measured the model, on `measured_on` test examples in all. `server` is
    the global model after the round; it is not stored.
    """

    round: int
    accuracy: float | None
    balanced_accuracy: float | None
    loss: float | None
    per_class_accuracy: list[float | None] | None
    client_accuracy: float | None
    train_loss: float | None
    clients: int
    seconds: float
    engine: str
    device: str
    diverged: bool = False
    validation_accuracy: float | None = None
    probes: dict[str, Any] = field(default_factory=dict)
    asked: int = 0
    measured_by: list[int] | None = None
    measured_on: int | None = None
    server: Server | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, measured: Evaluation | None, *, diverged: bool, **rest: Any) -> "RoundRecord":
        """A copy with the measures of a round, or without any."""
        nothing: dict[str, Any] = dict.fromkeys((f.name for f in fields(Evaluation)), None)
        unmeasured = cls(**nothing, **rest, diverged=diverged)
        return unmeasured if measured is None else unmeasured.measured_as(measured)

    def measured_as(self, measured: Evaluation) -> "RoundRecord":
        """The same round with these measures."""
        values = asdict(measured)
        values["per_class_accuracy"] = values["per_class_accuracy"] or None  # nodes do not measure it
        return replace(self, **values, diverged=self.diverged or isnan(measured.loss))

    @classmethod
    def stored(cls, record: dict[str, Any]) -> "RoundRecord":
        """A record from a line of the store; fields of later versions are ignored."""
        return cls(**{f.name: record[f.name] for f in fields(cls) if f.name in record})

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; no number is NaN or infinite."""
        kept = {f.name: _finite(getattr(self, f.name)) for f in fields(self) if f.name != "server"}
        return {name: value for name, value in kept.items() if value is not None or name not in _OF_NODES}


@dataclass(frozen=True)
class Observation:
    """What a probe may observe after a round. Observing changes nothing."""

    round: int
    run: Run
    model: Model
    cohort: Cohort
    before: Server
    update: Update | None
    after: Server


Probe = Callable[[Observation], dict[str, Any]]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
