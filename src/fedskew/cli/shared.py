"""What several commands have in common."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fedskew.cli.options import interruption
from fedskew.cli.terminal.progress import Spent, byte_progress, note, round_progress
from fedskew.core.spec import name_in
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder, Store
    from fedskew.simulation.records import RoundRecord


Key = TypeVar("Key", str, tuple[str, str])
"""What a group is called, and what the bar adds to that."""
Group = tuple[Key, "Sequence[Run]"]
Round = tuple[Key, "Run", "RoundRecord"]


def decode(run: "Run", *, enabled: bool) -> tuple[str, ...] | None:
    """Show the progress of decoding image files, which happens once. Their folders are the class names."""
    if name_in(run.dataset) not in ("imagenet12", "folder"):
        return None
    from fedskew.data import load_dataset

    with byte_progress("images", enabled=enabled) as report:
        return load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report).class_names


def trained(
    groups: "Sequence[Group[tuple[str, str]]]", store: "Store", track: Sequence[str] = (), jobs: int = 1, *, show: bool
) -> dict[str, Spent]:
    """Train groups of runs, each by its name and what the bar adds to that, under one bar; Ctrl-C ends it. Groups that
    another process works on come last. Returns what each name took."""
    from fedskew.tracking import Several

    runs = [run for _, several in groups for run in several]
    spent, told = {name: Spent() for (name, _), _ in groups}, Several(track)
    progress = round_progress(sum(run.rounds for run in runs), enabled=show)
    with (
        looking_for_rounds(store, [run.hash for run in runs]),
        closing(rounds_of(groups, store, jobs)) as coming,
        progress as step,
    ):
        for (name, more), run, record in coming:
            spent[name].add(record)
            told(run, record)
            step(name + more, record)
    return spent


def rounds_of(groups: "Sequence[Group[Key]]", store: "Store", jobs: int) -> "Generator[Round[Key], None, None]":
    """Every record of the groups, once. What did not work in one of several processes is done here, or raises its
    error."""
    known: dict[Run, int] = {}  # from a process that ended, or before another one was busy
    with closing(_all_rounds(groups, store, jobs)) as coming:
        for key, run, record in coming:
            if record.round > known.get(run, 0):
                known[run] = record.round
                yield key, run, record
                interruption.check()


def _all_rounds(groups: "Sequence[Group[Key]]", store: "Store", jobs: int) -> "Generator[Round[Key], None, None]":
    left = groups if jobs == 1 else (yield from _in_jobs(groups, store, jobs))
    yield from _busy_last(left, store)


def _in_jobs(
    groups: "Sequence[Group[Key]]", store: "Store", jobs: int
) -> "Generator[Round[Key], None, list[Group[Key]]]":
    """The records from several processes, and the groups that are left. With more jobs than groups, every seed has its
    own process."""
    from fedskew.simulation.execute import Problem
    from fedskew.simulation.jobs import in_jobs

    whose, left = {run: key for key, several in groups for run in several}, list[Group[Key]]()
    parts = [several for _, several in groups] if len(groups) >= jobs else [[run] for run in whose]
    with closing(in_jobs(parts, store, min(jobs, len(parts)))) as events:
        for event in events:
            if isinstance(event, Problem):
                key = whose[event.runs[0]]
                left.append((key, event.runs))
                if event.died:
                    note(f"{_called(key)}, run {event.runs[0].hash[:8]}: {event.reason}; it is done again")
            else:
                run, record = event
                yield whose[run], run, record
    return left


def _called(key: str | tuple[str, str]) -> str:
    return key if isinstance(key, str) else "".join(key)


def _busy_last(groups: "Sequence[Group[Key]]", store: "Store") -> "Iterator[Round[Key]]":
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
        names = ", ".join(dict.fromkeys(_called(key) for key, _ in busy))
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


def check_some_finished(rows: Sequence[Mapping[str, Any]]) -> None:
    """Fail if no run of these rows has a result."""
    if all(row["diverged"] == len(row["seeds"]) for row in rows):
        raise RuntimeError("every run diverged; a smaller lr may help")


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
