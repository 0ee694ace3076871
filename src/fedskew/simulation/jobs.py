"""Runs by several processes at once. The parent has the list and hands out one group at a time."""

import os
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from fedskew.core.interruption import Interruption
from fedskew.core.ranks import JOBS, own_cores
from fedskew.core.round import Server
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.execute import Event, Problem, execute
from fedskew.simulation.records import RoundRecord

_ELSEWHERE = Server({}, {}, {}, {})
"""The model of a round that another process has computed."""
_SPAWN = get_context("spawn")
"""Fresh processes: PyTorch's threads do not survive a fork."""
MOST_JOBS = 256


def in_jobs(groups: Sequence[Sequence[Run]], store: Store, jobs: int) -> Generator[Event, None, None]:
    """The results of `execute`, from several processes. Close it to end them; finished work is kept. A run that another
    process is doing, of this command or another one, is reported as a problem.
    """
    left = iter(groups)
    workers = [_Worker(store, jobs) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.begin(next(left, None))
        while busy := [worker for worker in workers if worker.runs]:
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                if (event := worker.hear()) is not None:
                    yield event
                if not worker.runs:
                    worker.begin(next(left, None))
    finally:
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.join()


class _Worker:
    """A process that does one group of runs after another, and the group that it is doing."""

    def __init__(self, store: Store, jobs: int) -> None:
        self._store, self._jobs = store, jobs
        self.runs: Sequence[Run] = ()
        self._process: SpawnProcess | None = None

    def begin(self, runs: Sequence[Run] | None) -> None:
        """Start a group, in a new process if the last one has died; None: there is no more to do."""
        self.runs = runs or ()
        if runs is None:
            self.end()
            return
        if self._process is None:
            ours, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(target=work, args=(theirs, self._store), daemon=True)
            with theirs, _starting(self._jobs):
                process.start()
                self.pipe, self._process = ours, process  # before a Ctrl-C that was held back is raised
        with suppress(OSError):  # a process that has died is noticed when it is heard
            self.pipe.send([run.model_dump() for run in runs])

    def hear(self) -> Event | None:
        """A record or a problem of the group; None, and there are no `runs`, at its end."""
        runs, process = self.runs, self._process
        assert process is not None
        try:
            told = self.pipe.recv()
        except (EOFError, OSError):
            self.pipe.close()
            self.join()
            reason = f"the process that did it ended with {process.exitcode}"
            told, self.runs = Problem(tuple(runs), reason, died=True), ()
        if told is None:
            self.runs = ()
        if told is None or isinstance(told, Problem):
            return told
        position, record, computed = told
        return runs[position], replace(RoundRecord.stored(record), server=_ELSEWHERE if computed else None)

    def end(self) -> None:
        """Ask the process to end, by a signal and, if that is lost, by the end of its pipe."""
        if self._process is not None:
            self._process.terminate()
            self.pipe.close()

    def join(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            self._process.join()
            self._process = None


def work(pipe: "Connection[Any, Any]", store: Store) -> None:
    """What a process does: runs come in, records and problems go out, then None. SIGTERM ends it, and so does the end
    of its parent; finished work is kept."""
    stop = Interruption()
    with suppress(KeyboardInterrupt, EOFError, ConnectionError), _unshaken_end():
        signal.signal(signal.SIGTERM, stop)
        os.dup2(2, 1)  # what a run prints is for the user
        while True:
            runs = [Run(**fields) for fields in pipe.recv()]
            for event in execute([runs], store):
                pipe.send(event if isinstance(event, Problem) else _sent(runs, *event))
                stop.check()
            pipe.send(None)


def _sent(runs: Sequence[Run], run: Run, record: RoundRecord) -> tuple[int, dict[str, Any], bool]:
    """A record without its model: of which run of the group, what is kept of it, and whether it was computed now."""
    return runs.index(run), record.as_dict(), record.server is not None


@contextmanager
def _starting(jobs: int) -> Iterator[None]:
    """A process that starts inside reads how many share the machine and how many threads each may use. Ctrl-C does not
    reach it: its parent ends it."""
    if os.name == "posix":
        resource_tracker.ensure_running()  # the first start would launch it, and that unblocks SIGINT
    before = dict(os.environ)
    os.environ.update({"OMP_NUM_THREADS": str(threads_each(jobs)), **before, JOBS: str(jobs)})
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if os.name == "posix" else set()
    try:
        yield
    finally:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _unshaken_end() -> Iterator[None]:
    """After this, SIGTERM no longer interrupts a process: Python's clean-up would print where it was."""
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def threads_each(jobs: int) -> int:
    """The cores of this machine, divided among the jobs."""
    return max(1, own_cores() // jobs)
