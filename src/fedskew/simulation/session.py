"""Runs, a round at a time: `for record in simulate(run): ...`. To stop, a caller stops iterating."""

import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedskew.core.checks import check_number
from fedskew.core.memory import free_memory, seeds_together
from fedskew.core.ranks import expected
from fedskew.engine.distributed import join_ranks
from fedskew.runs.origin import check_answer, check_origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, Store, StoreError
from fedskew.runs.summary import is_finished, tail
from fedskew.runs.versions import result_version
from fedskew.simulation.plan import usable_device
from fedskew.simulation.records import Probe, RoundRecord
from fedskew.simulation.simulation import Simulation, advance

Key = TypeVar("Key")
FEDERATED = "flower"
"""The engine name in sessions of a real federation."""


def simulate(
    run: Run, probes: Sequence[Probe] = (), *, every: int = 1, store: Store | Path | str | None = None
) -> Iterator[RoundRecord]:
    """Records of one run, round after round. With a store, or its folder, finished rounds are read from there."""
    for _, record in simulate_many([run], probes, every=every, store=store):
        yield record


def simulate_many(
    runs: Sequence[Run], probes: Sequence[Probe] = (), *, every: int = 1, store: Store | Path | str | None = None
) -> Iterator[tuple[int, RoundRecord]]:
    """Several seeds of one run together, if the engine can; yields the run's position with each record. If memory does
    not suffice for all of them, the first ones are simulated to the end before the others start.
    """
    if probes and expected() > 1:
        raise ValueError("probes need all clients of a round; with several ranks none has them all")
    check_number("every", every, 1)
    if wrong := [run for run in runs if not isinstance(run, Run)]:
        raise TypeError(f"{wrong[0]!r} is not a run; write Run(dataset=..., algorithm=..., rounds=...)")
    kept = Store.of(store)
    if len({run.model_copy(update={"seed": 0}) for run in runs}) > 1:
        raise ValueError("runs that are simulated together may differ only in their seed")
    waiting = deque(enumerate(runs))
    while waiting:
        yield from _simulate_group(waiting, probes, every, kept)


def simulate_groups(
    groups: Iterable[tuple[Key, Sequence[Run]]], store: Store | None = None
) -> Generator[tuple[Key, Run, RoundRecord], None, None]:
    """Every record of groups of runs that differ only in their seed, group after group, with the group's key."""
    for key, runs in groups:
        for position, record in simulate_many(runs, store=store):
            yield key, runs[position], record


@dataclass
class _Begun:
    """A run in the middle of its rounds. `folder` is where it is stored, if this rank has that. If a longer run was not
    evaluated where this one ends, its rounds up to `again` are made anew, and their `records` are filled in there."""

    position: int
    simulation: Simulation
    folder: Folder | None
    again: int
    records: list[dict[str, Any]] = field(default_factory=list)

    def note(self, record: RoundRecord) -> None:
        """Keep the record of a round that is made anew; after the last one, the run goes on from its checkpoint."""
        if record.round <= self.again:
            self.records.append(record.as_dict())
        if record.round == self.again or (self.simulation.ended and record.round < self.again):
            if self.folder is not None:
                self.folder.fill_records(self.records)
            if not self.simulation.ended:
                self.simulation.attach(self.folder)


def _simulate_group(
    waiting: deque[tuple[int, Run]], probes: Sequence[Probe], every: int, store: Store | None
) -> Iterator[tuple[int, RoundRecord]]:
    """As many of the waiting runs as fit into memory together, starting with the first."""
    with ExitStack() as stack:
        begun, most = list[_Begun](), len(waiting)
        while waiting and len(begun) < most:
            position, run = waiting.popleft()
            one, earlier = _begin(position, run, store, stack)
            if one is not None:
                if not begun:
                    most = one.simulation.ranks.broadcast(_fitting(one.simulation, 1 + len(waiting)))
                begun.append(one)
            yield from ((position, record) for record in earlier)
        yield from _rounds(begun, probes, every)


def _begin(
    position: int, run: Run, store: Store | None, stack: ExitStack
) -> tuple[_Begun | None, Sequence[RoundRecord]]:
    """A run at its last checkpoint, and its records so far; if nothing is left to do, its records alone."""
    ranks = join_ranks(usable_device(run.device))
    ranks.check_same(int(run.hash[:15], 16) ^ run.rounds, "runs")
    folder = None if store is None or ranks.rank else store.folder(run.hash)
    simulation = None
    if ranks.broadcast(folder is not None and not folder.exists()):
        simulation = ranks.all_can(partial(Simulation, run))  # a wrong request fails before anything is written
    done = ranks.all_can(partial(opened, run, folder, stack))
    if known := ranks.broadcast([record.as_dict() for record in done]):
        return None, [RoundRecord.stored(record) for record in known]
    simulation = simulation or ranks.all_can(partial(Simulation, run))
    if ranks.size > 1:
        ranks.check_same(simulation.federation.digest, "data or splits of them")
    ranks.all_can(partial(check_origin, folder, run, simulation.federation.dataset))
    again = ranks.broadcast(0 if folder is None else _unmeasured(run, folder))
    if folder is not None:
        note_run(run, folder)
    simulation.attach(None if again else folder)
    stack.callback(simulation.close)
    return _Begun(position, simulation, folder, again), simulation.earlier


def _unmeasured(run: Run, folder: Folder) -> int:
    """The last stored round of a run, if some stored round of its end was not evaluated; else 0."""
    kept = folder.records()[: min(run.rounds, folder.saved())]
    return len(kept) if any(record["accuracy"] is None for record in kept[run.rounds - tail(run.rounds) :]) else 0


def _rounds(begun: list[_Begun], probes: Sequence[Probe], every: int) -> Iterator[tuple[int, RoundRecord]]:
    """The rounds that are left of every run; the runs that are furthest behind, and can go together, go first."""
    started = [*begun]
    while started:
        due = min(one.simulation.round for one in started)
        ready = [one for one in started if one.simulation.round == due]
        group = [one for one in ready if one.simulation.shared == ready[0].simulation.shared]
        try:
            records = advance([one.simulation for one in group], probes if (due + 1) % every == 0 else ())
        except Exception:
            for folder in (one.simulation.folder for one in started):
                if folder is not None:
                    folder.drop_empty()
            raise
        for one, record in zip(group, records, strict=True):
            one.note(record)
        yield from ((one.position, record) for one, record in zip(group, records, strict=True))
        for one in group:
            if one.simulation.ended:
                one.simulation.close()
                started.remove(one)


def opened(run: Run, folder: Folder | None, stack: ExitStack, *, federated: bool = False) -> list[RoundRecord]:
    """The records of a run that needs no more work. If it does, its folder is locked, so that what is read stays valid;
    a finished run can be read even from a read-only store. A run is either simulated or federated."""
    if folder is None:
        return []
    if folder.exists():
        lengths = folder.lengths()  # readable, and of this version
        if any((session.get("engine") == FEDERATED) != federated for session in folder.sessions()):
            whose, what = ("was simulated", "train") if federated else ("is a federation's", "simulate")
            raise StoreError(f"run {run.hash} in {folder.path.parent} {whose}; {what} it in another store")
        if done := finished_records(run, folder):
            if run.rounds not in lengths:
                with suppress(StoreError), folder.lock():
                    note_run(run, folder)
            return done
    else:
        note_run(run, folder)
    stack.enter_context(folder.lock())
    return finished_records(run, folder)  # another process may have finished it meanwhile


def note_run(run: Run, folder: Folder) -> None:
    """Create the run's folder, or record the current request."""
    short = {**run.short, "title": run.title, **({"contents": run.contents} if run.contents else {})}
    folder.create(run.hash, run.model_dump(), short, result_version(run.algorithm))


def _fitting(first: "Simulation", seeds: int) -> int:
    """How many seeds may be simulated together, the first of them included."""
    most = seeds_together(first.need(), free_memory(first.device), seeds)
    if most < seeds:
        warnings.warn(f"not enough memory for all seeds together; running {most} at a time", stacklevel=2)
    return most


def finished_records(run: Run, folder: Folder) -> list[RoundRecord]:
    """The records of a run that needs no more work, else nothing."""
    records = folder.records()
    if not is_finished(records, run.rounds, folder.saved()):
        return []
    check_answer(folder, run)
    return [RoundRecord.stored(record) for record in records[: run.rounds]]
