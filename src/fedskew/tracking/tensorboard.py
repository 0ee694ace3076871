"""TensorBoard event files, one folder per run: `tensorboard --logdir DIR`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.tracking import Log


@contextmanager
def opened(folder: Path, run: "Run") -> Iterator["Log"]:
    """A run reports all its rounds, even when it resumes, so its earlier event files are replaced."""
    from torch.utils.tensorboard.writer import SummaryWriter

    mine = folder / run.hash
    for old in mine.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(str(mine)) as writer:
        writer.add_text("run", f"```json\n{json.dumps(run.model_dump(), indent=1)}\n```")

        def log(round: int, values: dict[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, round)

        yield log
