"""What several commands have in common."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from fedskew.cli.options import interruption
from fedskew.cli.terminal.progress import Spent, byte_progress, round_progress
from fedskew.core.spec import name_in
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from fedskew.cli.documents import RunResult
    from fedskew.runs.run import Run
    from fedskew.runs.store import Folder, Store
    from fedskew.simulation.execute import Problem
    from fedskew.simulation.records import RoundRecord


def decode(run: "Run", *, enabled: bool) -> tuple[str, ...] | None:
    """Show the progress of decoding image files, which happens once. Their folders are the class names."""
    if name_in(run.dataset) not in ("imagenet12", "folder"):
        return None
    from fedskew.data import load_dataset

    with byte_progress("images", enabled=enabled) as report:
        return load_dataset(run.dataset, run.seed, run.clients, run.data_dir, progress=report).class_names


def trained(
    groups: "Sequence[tuple[tuple[str, str], Sequence[Run]]]",
    store: "Store",
    track: Sequence[str] = (),
    jobs: int = 1,
    *,
    show: bool,
) -> dict[str, Spent]:
    """Train groups of runs, each by its name and what the bar adds to that, under one bar; Ctrl-C ends it. Returns what
    each name took."""
    from fedskew.simulation.execute import Problem
    from fedskew.tracking import Several

    whose = {run: key for key, several in groups for run in several}
    spent, told, problems = {name: Spent() for (name, _), _ in groups}, Several(track), list[Problem]()
    progress = round_progress(sum(run.rounds for run in whose), enabled=show)
    with (
        looking_for_rounds(store, [run.hash for run in whose]),
        closing(_rounds(whose, store, jobs)) as events,
        progress as step,
    ):
        for event in events:
            if isinstance(event, Problem):
                problems.append(event)
                continue
            run, record = event
            name, more = whose[run]
            spent[name].add(record)
            told(run, record)
            step(name + more, record)
            interruption.check()
    if problems:
        raise RuntimeError("; ".join(dict.fromkeys(problem.reason for problem in problems)))
    return spent


def _rounds(
    whose: "Mapping[Run, tuple[str, str]]", store: "Store", jobs: int
) -> "Generator[tuple[Run, RoundRecord] | Problem, None, None]":
    """Every record of runs. Seeds of a method run together; with more jobs than methods, each seed by itself."""
    from fedskew.simulation.jobs import in_jobs
    from fedskew.simulation.session import simulate_groups

    groups = [(key, list(several)) for key, several in groupby(whose, lambda run: whose[run])]
    if jobs == 1:
        for _, run, record in simulate_groups(groups, store):
            yield run, record
    else:
        parts = [several for _, several in groups] if len(groups) >= jobs else [[run] for run in whose]
        yield from in_jobs(parts, store, min(jobs, len(parts)))


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
