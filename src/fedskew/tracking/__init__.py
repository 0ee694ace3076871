"""Runs in other people's tools: `--track tensorboard:DIR`, `wandb:DIR`, `mlflow:DIR`, with the same metric names."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.core import spec

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.simulation.records import RoundRecord

Log = Callable[[int, dict[str, float]], None]
"""(round, metrics) -> None"""
TRACKERS = ("tensorboard", "wandb", "mlflow")
"""Each needs the extra of the same name."""
_MEASURES = ("accuracy", "balanced_accuracy", "loss", "client_accuracy", "validation_accuracy", "train_loss", "seconds")
_PROBES = {"drift_norm": "drift/norm", "drift_cosine": "drift/cosine"}


def metrics(record: "RoundRecord") -> dict[str, float]:
    """A round's measures, with the names in docs/tracking.md; missing measures are left out."""
    known = record.as_dict()
    values = {name: known[name] for name in _MEASURES}
    values["clients"] = float(record.clients)
    values["diverged"] = float(record.diverged)
    values |= {f"class_accuracy/{c}": share for c, share in enumerate(known["per_class_accuracy"] or ())}
    values |= {shown: known["probes"].get(name) for name, shown in _PROBES.items()}
    return {name: float(value) for name, value in values.items() if value is not None}


@contextmanager
def tracking(texts: Sequence[str], run: "Run") -> Iterator[Callable[["RoundRecord"], None]]:
    """Where a run's rounds are written besides the store; closed at the end of the block, even if it fails."""
    with ExitStack() as stack:
        logs = [stack.enter_context(_open(text, run)) for text in texts]

        def step(record: "RoundRecord") -> None:
            values = metrics(record)
            for log in logs:
                log(record.round, values)

        yield step


class Several:
    """Write each of several runs as a whole, after its last round: the rounds of seeds alternate, and not every tracker
    can have two runs open."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._open: dict[str, list[RoundRecord]] = {}

    def __call__(self, run: "Run", record: "RoundRecord") -> None:
        if not self._texts:
            return
        records = self._open.setdefault(run.hash, [])
        records.append(replace(record, server=None))  # a model for each round would fill the memory
        if record.diverged or record.round == run.rounds:
            with tracking(self._texts, run) as log:
                for one in self._open.pop(run.hash):
                    log(one)


def check(texts: Sequence[str]) -> None:
    """Refuse an unknown tracker, or one whose package is not installed, before any work is done."""
    for text in texts:
        name, _, folder = text.partition(":")
        if name not in TRACKERS:
            raise ValueError(spec.unknown("tracker", name, dict.fromkeys(TRACKERS)))
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"track is {text!r}, but {folder} is not a folder")
        try:
            import_module(f"fedskew.tracking.{name}")
            import_module(name)
        except ImportError as error:
            raise ValueError(
                f"track is {text!r}, which needs {name} ({error}); in a clone of fedskew: "
                f"pip install -c constraints.txt '.[{name}]'"
            ) from error


def _open(text: str, run: "Run") -> Any:
    name, _, folder = text.partition(":")
    return import_module(f"fedskew.tracking.{name}").opened(Path(folder or name), run)
