"""Runs in other people's tools: `--track tensorboard:DIR`, `wandb:DIR`, `mlflow:DIR`, with the same metric names."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.core import spec
from fedskew.tracking.measurements import metrics

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.simulation.records import RoundRecord

Log = Callable[[int, dict[str, float]], None]
"""(round, metrics) -> None"""
TRACKERS = ("tensorboard", "wandb", "mlflow")
"""Each needs the extra of the same name."""


@contextmanager
def tracking(texts: Sequence[str], run: "Run") -> Iterator[Callable[["RoundRecord"], None]]:
    """Where a run's rounds are written beside the store; closed with the block, also when it fails."""
    with ExitStack() as stack:
        logs = [stack.enter_context(_open(text, run)) for text in texts]

        def step(record: "RoundRecord") -> None:
            values = metrics(record)
            for log in logs:
                log(record.round, values)

        yield step


def check(texts: Sequence[str]) -> None:
    """Refuse an unknown tracker, or one whose package is not there, before any work is done."""
    for text in texts:
        name, _, folder = text.partition(":")
        if name not in TRACKERS:
            raise ValueError(spec.unknown("tracker", name, dict.fromkeys(TRACKERS)))
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"track is {text!r}, but {folder} is not a folder")
        try:
            import_module(f"fedskew.tracking.{name}").check()
        except ImportError as error:
            raise ValueError(
                f"track is {text!r}, which needs {name} ({error}); in a clone of fedskew: pip install -e '.[{name}]'"
            ) from error


def _open(text: str, run: "Run") -> Any:
    name, _, folder = text.partition(":")
    return import_module(f"fedskew.tracking.{name}").opened(Path(folder or name), run)
