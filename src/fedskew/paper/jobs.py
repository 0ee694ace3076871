"""Runs by several processes at once, in order of need. The parent has the list and hands out one run at a time."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Queue
from threading import Lock, Thread
from typing import Any

from fedskew.core.ranks import JOBS
from fedskew.core.round import Server
from fedskew.paper.execute import Problem
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.records import RoundRecord

Event = tuple[Run, RoundRecord] | Problem
_ELSEWHERE = Server({}, {}, {}, {})
"""The model of a round that another process has computed."""
MOST_JOBS = 256


def check_jobs(jobs: int) -> None:
    if not 1 <= jobs <= MOST_JOBS:
        raise ValueError(f"jobs is {jobs}; allowed: 1 to {MOST_JOBS}")


def by_need(groups: Sequence[list[Run]]) -> list[list[Run]]:
    """Every run separately, and all first seeds before any second seed."""
    return [[run] for run in sorted((run for group in groups for run in group), key=lambda run: run.seed)]


def in_jobs(groups: Sequence[list[Run]], store: Store, jobs: int) -> Generator[Event, None, None]:
    """The results of `execute`, from several processes. Close it to end them; finished work is kept. A run that another
    process is doing, of this command or another one, is reported as a problem.
    """
    left = iter([run for group in groups for run in group])
    events: Queue[Event | None] = Queue()
    workers = [_Worker(store, jobs, events) for _ in range(min(jobs, sum(map(len, groups))))]
    lock = Lock()

    def next_run() -> Run | None:
        with lock:
            return next(left, None)

    threads = [Thread(target=worker.work, args=(next_run,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        working = len(threads)
        while working:
            event = events.get()
            if event is None:
                working -= 1
            else:
                yield event
    finally:
        with lock:
            left = iter(())
        for worker in workers:
            worker.end()
        for thread in threads:
            thread.join()


class _Worker:
    """A process, and the thread that talks with it."""

    def __init__(self, store: Store, jobs: int, events: "Queue[Event | None]") -> None:
        self._store, self._jobs, self._events = store, jobs, events
        self._lock, self._ended = Lock(), False
        self._process: subprocess.Popen[str] | None = None

    def work(self, next_run: Callable[[], Run | None]) -> None:
        try:
            while (run := next_run()) is not None:
                if (process := self._started()) is None:
                    break
                self._do(run, process)
        finally:
            self.end()
            self._hang_up()
            self._events.put(None)

    def end(self) -> None:
        """Ask the process to end, and wait until it has."""
        with self._lock:
            self._ended = True
            if (process := self._process) is not None:
                process.terminate()
                process.wait()

    def _started(self) -> "subprocess.Popen[str] | None":
        """The process, or a new one if the last has ended on its own; None when no more are wanted."""
        with self._lock:
            if self._ended:
                return None
            if self._process is None or self._process.poll() is not None:
                self._hang_up()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "fedskew.paper.worker", str(self._store.root)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={"OMP_NUM_THREADS": str(threads_each(self._jobs)), **os.environ, JOBS: str(self._jobs)},
                    start_new_session=True,  # Ctrl-C reaches the parent, which ends its processes
                )
            return self._process

    def _hang_up(self) -> None:
        """Close the pipes to a process that has ended."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def _do(self, run: Run, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(f"{json.dumps(run.model_dump())}\n")
            process.stdin.flush()
            for line in process.stdout:
                if not line.endswith("\n"):  # it was killed while it wrote
                    break
                told = json.loads(line)
                if "end" in told:
                    return
                self._events.put(_event(run, told))
        code = process.wait()
        if not self._ended:
            self._events.put(Problem((run,), f"the process that did it ended with {code}"))


def threads_each(jobs: int) -> int:
    """The cores of this machine, divided among the jobs."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // jobs)


def _event(run: Run, told: dict[str, Any]) -> Event:
    if "problem" in told:
        return Problem((run,), told["problem"], told["busy"])
    record = RoundRecord.stored(told["record"])
    return run, replace(record, server=_ELSEWHERE) if told["computed"] else record
