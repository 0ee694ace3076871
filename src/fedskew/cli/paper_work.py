"""The work of `fedskew paper run` and `map`: what is missing is run, with its progress."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.cli.options import interruption
from fedskew.cli.paper_request import known_results
from fedskew.cli.paper_view import cell_of, say_done, time_text
from fedskew.cli.terminal.progress import round_progress, say

if TYPE_CHECKING:
    from fedskew.paper.choice import Choice
    from fedskew.runs.results import Results
    from fedskew.runs.run import Run
    from fedskew.runs.store import Store
    from fedskew.simulation.execute import Problem


def do_missing(
    item: Any, choice: "Choice", shard: str, store: "Store", published: Path, jobs: int = 1, *, show: bool
) -> tuple[list["Run"], list["Problem"]]:
    """Run what is missing until nothing is; returns what was done and what was not."""
    from fedskew.paper.execute import by_need, missing
    from fedskew.simulation.execute import Problem, execute
    from fedskew.simulation.jobs import in_jobs

    problems: list[Problem] = []
    done: list[Run] = []
    while groups := missing(item, choice, shard, store, published, {run for p in problems for run in p.runs}):
        if jobs > 1:
            groups = by_need(groups)
            _estimate([run for (run,) in groups], jobs, store, published, enabled=show)
        doing = execute(groups, store) if jobs == 1 else in_jobs(groups, store, jobs)
        with (
            closing(doing) as events,
            round_progress(sum(run.rounds for group in groups for run in group), enabled=show) as step,
        ):
            for event in events:
                if isinstance(event, Problem):
                    problems.append(event)
                    continue
                run, record = event
                step(f"{run.short_algorithm} {cell_of(run)}", record)
                if record.round == run.rounds or record.diverged:
                    done.append(run)
                    say_done(run, record, enabled=show)
                interruption.check()
    if hasattr(item, "measure"):
        item.measure(store, choice)
    return done, problems


def _estimate(left: "Sequence[Run]", jobs: int, store: "Store", published: Path, *, enabled: bool) -> None:
    """Print how much is left to do before starting."""
    from fedskew.paper.estimate import Speeds, device_name

    if not enabled:
        return
    where = device_name(left[0].device)
    speeds = Speeds(known_results(store, published), where)
    known = [speeds.seconds(run) for run in left]
    time = time_text(sum(seconds for seconds in known if seconds is not None), known.count(None))
    time += ", since no such run has finished there yet" if set(known) == {None} else ""
    say(f"{len(left)} runs, {jobs} at a time; one after another on {where}: {time}", err=True)


def unsettled(item: Any, choice: "Choice", results: "Results") -> str | None:
    """The note if the next runs depend on runs of other shares."""
    if not hasattr(item, "settled") or item.settled(choice, results):
        return None
    return "the next runs depend on runs that are not in this store yet; repeat the command when they are"
