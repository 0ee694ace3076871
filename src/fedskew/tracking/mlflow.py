"""MLflow's file store: `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR`."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.tracking import Log

EXPERIMENT = "fedskew"
_TAG = "fedskew.run_hash"
# before MLflow is imported, where the user has not set them
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions want a database unless files are allowed
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


@contextmanager
def opened(folder: Path, run: "Run") -> Iterator["Log"]:
    """A run reports all its rounds, even when it resumes, so its earlier entries are deleted."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    found = client.get_experiment_by_name(EXPERIMENT)
    experiment = found.experiment_id if found is not None else client.create_experiment(EXPERIMENT)
    for old in client.search_runs([experiment], f"tags.`{_TAG}` = '{run.hash}'"):
        client.delete_run(old.info.run_id)
    name = f"{run.short_algorithm} {run.title}, seed {run.seed}"
    number = client.create_run(experiment, tags={_TAG: run.hash}, run_name=name).info.run_id
    for field, value in run.model_dump().items():
        client.log_param(number, field, value)

    def log(round: int, values: dict[str, float]) -> None:
        now = int(1000 * time.time())
        client.log_batch(number, [Metric(name, value, now, round) for name, value in values.items()])

    try:
        yield log
    except BaseException:
        client.set_terminated(number, "FAILED")
        raise
    client.set_terminated(number)
