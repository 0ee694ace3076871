"""What several commands have in common."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from fedskew.cli.options import interruption
from fedskew.cli.terminal.progress import Spent, byte_progress, round_progress
from fedskew.core.spec import name_in
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder, Store
    from fedskew.simulation.records import RoundRecord


def decode(run: "Run", *, enabled: bool) -> tuple[str, ...] | None:
    """Show the progress of decoding image files, which happens once. Their folders are the class names."""
    if name_in(run.dataset) not in ("imagenet12", "folder"):
        return None
    from fedskew.data import load_dataset

    with byte_progress("images", enabled=enabled) as report:
        return load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report).class_names


def trained(
    groups: "Sequence[tuple[tuple[str, str], Sequence[Run]]]", store: "Store", track: Sequence[str] = (), *, show: bool
) -> dict[str, Spent]:
    """Train groups of runs, each by its name and what the bar adds to that, under one bar; Ctrl-C ends it. Groups that
    another process works on come last. Returns what each name took."""
    from fedskew.tracking import Several

    runs = [run for _, several in groups for run in several]
    spent, told = {name: Spent() for (name, _), _ in groups}, Several(track)
    progress = round_progress(sum(run.rounds for run in runs), enabled=show)
    with looking_for_rounds(store, [run.hash for run in runs]), progress as step:
        for (name, more), run, record in _busy_last(groups, store):
            spent[name].add(record)
            told(run, record)
            step(name + more, record)
            interruption.check()
    return spent


def _busy_last(
    groups: "Sequence[tuple[tuple[str, str], Sequence[Run]]]", store: "Store"
) -> "Iterator[tuple[tuple[str, str], Run, RoundRecord]]":
    """Every record of the groups. What another process works on may be done when the others are; else the error says
    that these are kept."""
    from fedskew.runs.store import StoreBusy
    from fedskew.simulation.session import simulate_groups

    busy = []
    for group in groups:
        try:
            yield from simulate_groups([group], store)
        except StoreBusy:
            busy.append(group)
    try:
        yield from simulate_groups(busy, store)
    except StoreBusy as error:
        names = ", ".join(name + more for (name, more), _ in busy)
        kept = "everything else is done and kept; " if len(busy) < len(groups) else ""
        raise StoreBusy(f"{error}, which {names} needs; {kept}the same command continues when that is done") from error


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


def unreadable(runs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """`run 3507… cannot be read: PROBLEM (8 others likewise)`: a sentence for each problem of runs, by their hashes."""
    like: dict[str, list[tuple[str, str]]] = {}
    for hash, problem in runs:
        like.setdefault(problem.replace(hash, ""), []).append((hash, problem))
    for (hash, problem), *others in like.values():
        more = f" ({counted(len(others), 'other run')} likewise)" if others else ""
        yield f"run {hash} cannot be read: {problem}{more}"


def result_of(folder: "Folder", records: Sequence[dict[str, Any]]) -> "RunResult":
    """The documented result of a run: what `run --json` prints."""
    from fedskew.runs.summary import summarise

    run = folder.run()
    result = summarise(run, records, folder.card())
    whole = {"run_hash": folder.path.name, **result, "run": run, "folder": str(folder.path)}
    return cast("RunResult", whole)
