"""Weights & Biases, offline: only `wandb sync DIR/wandb/offline-run-*` uploads anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.tracking import Log


@contextmanager
def opened(folder: Path, run: "Run") -> Iterator["Log"]:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    session = wandb.init(
        mode="offline",
        dir=str(folder),
        project="fedskew",
        id=run.hash,
        name=f"{run.short_algorithm} {run.title}, seed {run.seed}",
        config=run.model_dump(),
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
    )
    try:
        yield lambda round, values: session.log(values, step=round)
    finally:
        session.finish()
