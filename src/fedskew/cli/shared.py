"""What several commands have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fedskew.cli.terminal.progress import byte_progress

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder


def decode(run: "Run", *, enabled: bool) -> None:
    """Show the progress of decoding image files, which happens once."""
    if run.dataset.partition(":")[0] in ("imagenet12", "folder"):
        from fedskew.data import load_dataset

        with byte_progress("images", enabled=enabled) as report:
            load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report)


def result_of(folder: "Folder", records: Sequence[dict[str, Any]]) -> "RunResult":
    """The documented result of a run: what `run --json` prints."""
    from fedskew.runs.summary import summarise

    run = folder.run()
    result = summarise(run, records, folder.card())
    whole = {"run_hash": folder.path.name, **result, "run": run, "folder": str(folder.path)}
    return cast("RunResult", whole)
