"""What several commands have in common."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fedskew.cli.options import interruption
from fedskew.cli.terminal.progress import byte_progress, round_progress
from fedskew.core.spec import name_in

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder, Store
    from fedskew.simulation.records import RoundRecord

Key = TypeVar("Key")


def decode(run: "Run", *, enabled: bool) -> tuple[str, ...] | None:
    """Show the progress of decoding image files, which happens once. Their folders are the class names."""
    if name_in(run.dataset) not in ("imagenet12", "folder"):
        return None
    from fedskew.data import load_dataset

    with byte_progress("images", enabled=enabled) as report:
        return load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report).class_names


def followed(
    groups: "Sequence[tuple[Key, Sequence[Run]]]", store: "Store", label: Callable[[Key], str], *, show: bool
) -> "Iterator[tuple[Key, Run, RoundRecord]]":
    """Every record of groups of runs, with a bar over all of them; Ctrl-C ends it."""
    from fedskew.simulation.session import simulate_groups

    hashes = [run.hash for _, runs in groups for run in runs]
    progress = round_progress(sum(run.rounds for _, runs in groups for run in runs), enabled=show)
    with looking_for_rounds(store, hashes), progress as step:
        for key, run, record in simulate_groups(groups, store):
            yield key, run, record
            step(label(key), record)
            interruption.check()


@contextmanager
def looking_for_rounds(store: "Store", hashes: Sequence[str]) -> Iterator[None]:
    """After an interruption inside, see whether these runs have a finished round."""
    from fedskew.runs.store import StoreError

    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError, StoreError):
            interruption.in_vain = not any(store.folder(hash).records() for hash in hashes)
        raise


def result_of(folder: "Folder", records: Sequence[dict[str, Any]]) -> "RunResult":
    """The documented result of a run: what `run --json` prints."""
    from fedskew.runs.summary import summarise

    run = folder.run()
    result = summarise(run, records, folder.card())
    whole = {"run_hash": folder.path.name, **result, "run": run, "folder": str(folder.path)}
    return cast("RunResult", whole)
