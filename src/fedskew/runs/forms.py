"""The schemas of the store's files and of lines of results."""

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, with_config
from typing_extensions import TypedDict

from fedskew.runs.sealed import Line

Share = Annotated[float, Field(ge=0, le=1 + 1e-6)]
"""Rounding can put a mean of ones above one."""
Plain = Line | int | float | bool | None
_plain = with_config(ConfigDict(strict=True, extra="allow", allow_inf_nan=False))
"""JSON types; a later version may add fields."""


@_plain
class RunForm(TypedDict):
    """The fields of a run, as `Run.model_dump` returns them. `Run` itself validates them."""

    dataset: Line
    partition: Line
    clients: PositiveInt
    clients_per_round: NonNegativeInt
    model: Line
    algorithm: Line
    rounds: PositiveInt
    local_epochs: NonNegativeInt
    batch_size: NonNegativeInt
    optimizer: Line
    lr: float
    momentum: float
    weight_decay: float
    augment: Line
    weighting: Line
    seed: NonNegativeInt
    eval_every: PositiveInt
    lr_schedule: Line
    grad_clip: float | None
    dropout_rate: float
    validation: NotRequired[float]
    engine: Line
    device: Line
    precision: Line
    data_dir: Line | None


@_plain
class ShortForm(TypedDict):
    """Specs as people write them, the run's title, and its `Run.contents` if it uses files of the user's own."""

    dataset: Line
    partition: Line
    model: Line
    algorithm: Line
    title: Line
    contents: NotRequired[Line]


@_plain
class AboutForm(TypedDict):
    """run.json"""

    format: int
    result_version: int
    hash: Line
    run: RunForm
    short: ShortForm
    lengths: NotRequired[Annotated[list[PositiveInt], Field(min_length=1)]]


@_plain
class RecordForm(TypedDict):
    """A line of records.jsonl."""

    round: PositiveInt
    accuracy: Share | None
    balanced_accuracy: Share | None
    loss: float | None
    per_class_accuracy: list[Share | None] | None
    client_accuracy: Share | None
    train_loss: float | None
    clients: NonNegativeInt
    seconds: float
    engine: Line
    device: Line
    diverged: bool
    validation_accuracy: NotRequired[Share | None]
    probes: NotRequired[dict[str, Any]]
    asked: NotRequired[NonNegativeInt]
    measured_by: NotRequired[list[NonNegativeInt]]
    measured_on: NotRequired[PositiveInt]


@_plain
class SessionForm(TypedDict, total=False):
    """A line of sessions.jsonl. `changed` has the previous session's value and this one's for each name."""

    from_round: NonNegativeInt
    fedskew: Line
    torch: Line
    numpy: Line
    python: Line
    machine: Line
    flwr: Line
    cpus: int | None
    threads: int
    engine: Line
    engine_reason: Line
    ranks: int
    device: Line
    changed: dict[Line, Annotated[list[Plain], Field(min_length=2, max_length=2)]]
    data: Line
    data_from: Line
    data_stamp: Line
    guessing_accuracy: float
    guessing_balanced_accuracy: float
    app: Line
    mods: Line
    measured: Line
    wrapped: Line


@_plain
class CardForm(TypedDict):
    """partition.json"""

    partition: Line
    hash: Line
    clients: PositiveInt
    classes: PositiveInt
    samples: NonNegativeInt
    sizes: list[NonNegativeInt]
    counts: list[list[NonNegativeInt]]
    missing: list[list[NonNegativeInt]]
    skew: dict[Line, float]
    data: NotRequired[Line]


@_plain
class SummaryForm(TypedDict):
    """The result of `runs.summary.summarise` for a finished run."""

    algorithm: Line
    seed: NonNegativeInt
    rounds: NonNegativeInt
    accuracy: Share | None
    accuracy_last10: Share | None
    balanced_accuracy: Share | None
    client_accuracy: Share | None
    loss: float | None
    validation_accuracy: NotRequired[Share | None]
    per_class_accuracy: list[Share | None] | None
    diverged: bool
    seconds: float | None
    engine: Line | None
    device: Line | None
    partition_hash: Line | None


@_plain
class ResultForm(TypedDict):
    """A line of a results file."""

    hash: Line
    result_version: int
    run: RunForm
    short: ShortForm
    summary: SummaryForm
    curve: list[Annotated[tuple[PositiveInt, Share], Field(strict=False)]]
    sessions: list[dict[Line, Line | None]]
    measured: NotRequired[dict[str, Any]]


Measured = dict[str, dict[str, Any]]
"""measured.json: by the name of a measurement, then by the round of the model."""
Anything = dict[str, Any]
