"""What `paper run all --jobs` does first, and how the machine is shared."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from fedskew.core.ranks import JOBS, machine_share
from fedskew.paper import ITEMS, Everything
from fedskew.paper.choice import Choice
from fedskew.paper.execute import by_need, together
from fedskew.paper.table import NOTHING
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation import jobs as jobs_module
from fedskew.simulation.execute import Problem
from fedskew.simulation.jobs import in_jobs, threads_each, work
from tests.helpers.waiting import PATIENCE

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
FEW = Choice(seeds=2, rounds=1, stand_in=True)


def test_everything_is_what_all_items_need() -> None:
    wanted = set(Everything().runs(FEW, NOTHING))
    for item in ITEMS.values():
        assert set(item.runs(FEW, NOTHING)) <= wanted


def test_the_first_seed_of_everything_comes_first_then_what_decides_each_method() -> None:
    """So what an interrupted queue has done can be judged: two seeds of everything decide nothing."""
    groups = together(ITEMS["table1"].runs(replace(FEW, seeds=5), NOTHING))
    ordered = [run for (run,) in by_need(groups)]
    wanted = [[group[seed] for group in groups for seed in seeds] for seeds in ((0,), (1, 2), (3, 4))]
    assert ordered == [run for part in wanted for run in part]


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [threads_each(jobs) for jobs in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv(JOBS, "4")
    assert machine_share() == 4


def dies(pipe: "Connection[Any, Any]", store: Store) -> None:
    """A worker that ends after half a message."""
    pipe.recv()
    os.write(pipe.fileno(), b"\0\0\0\x10half")
    os._exit(7)


def test_a_process_that_dies_in_the_middle_of_a_message_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group is reported, and those after it get a new process."""
    monkeypatch.setattr(jobs_module, "work", dies)
    groups = [[Run(clients=2, rounds=1, seed=seed) for seed in several] for several in ((0, 1), (2,))]
    found = list(in_jobs(groups, Store(tmp_path / "runs"), jobs=1))
    assert found == [Problem(tuple(group), "the process that did it ended with 7", died=True) for group in groups]


def test_groups_give_the_records_of_every_seed_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    groups = [
        [Run(clients=2, rounds=2, algorithm=name, seed=seed) for seed in range(2)] for name in ("fedavg", "fedlc")
    ]
    found = [(run, record.round) for run, record in in_jobs(groups, store, jobs=2)]
    assert sorted(found, key=str) == sorted(((run, n) for group in groups for run in group for n in (1, 2)), key=str)
    sessions = [store.folder(run.hash).sessions() for group in groups for run in group]
    assert all(len(each) == 1 for each in sessions)


def tells_what_is_blocked(pipe: "Connection[Any, Any]", store: Store) -> None:
    pipe.recv()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    pipe.send(Problem((), ", ".join(sorted(signal.Signals(number).name for number in blocked))))
    pipe.send(None)
    pipe.recv()


@posix
def test_ctrl_c_does_not_reach_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one whose start finds no resource tracker."""
    tracker = resource_tracker.ResourceTracker()
    monkeypatch.setattr(resource_tracker, "getfd", tracker.getfd)
    monkeypatch.setattr(resource_tracker, "ensure_running", tracker.ensure_running)
    monkeypatch.setattr(jobs_module, "work", tells_what_is_blocked)
    try:
        found = list(in_jobs([[Run(clients=2, rounds=1)]], Store(tmp_path / "runs"), jobs=1))
    finally:
        tracker._stop()
    assert found == [Problem((), "SIGINT")]


def test_a_process_that_cannot_start_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(process: SpawnProcess) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(SpawnProcess, "start", start)
    with pytest.raises(OSError, match="no more processes"):
        list(in_jobs([[Run(clients=2, rounds=1)]], Store(tmp_path / "runs"), jobs=2))


def hears_no_signal(pipe: "Connection[Any, Any]", store: Store) -> None:
    """A worker that only the end of its pipe ends, and that says so."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (fields,) = pipe.recv()
    run = Run(**fields)
    pipe.send(Problem((run,), "waits"))
    if pipe.poll(PATIENCE):
        store.root.joinpath(f"ended{run.seed}").touch()


@posix
def test_all_processes_end_at_once_even_if_a_signal_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def noted(name: str) -> Callable[[SpawnProcess], None]:
        real = getattr(SpawnProcess, name)

        def call(process: SpawnProcess) -> None:
            called.append(name)
            real(process)

        return call

    for name in ("terminate", "join"):
        monkeypatch.setattr(SpawnProcess, name, noted(name))
    monkeypatch.setattr(jobs_module, "work", hears_no_signal)
    events = in_jobs([[Run(clients=2, rounds=1, seed=seed)] for seed in range(2)], Store(tmp_path), jobs=2)
    assert [next(events), next(events)]  # both wait
    events.close()
    assert called == ["terminate", "terminate", "join", "join"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended0", "ended1"]


def test_a_pipe_that_is_reset_ends_a_process_quietly(tmp_path: Path) -> None:
    """The parent has closed it without reading all."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    theirs.send("unread")
    ours.close()
    process = spawn.Process(target=work, args=(theirs, Store(tmp_path)))
    process.start()
    process.join()
    assert process.exitcode == 0


def _ends(pipe: "Connection[Any, Any]", store: Store) -> None:
    """A process whose work is done, and which is then told to end."""
    work(pipe, store)
    os.kill(os.getpid(), signal.SIGTERM)


@posix
def test_the_end_of_a_process_is_not_interrupted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_ends, args=(theirs, Store(tmp_path)))
    process.start()
    theirs.close()
    ours.close()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert "KeyboardInterrupt" not in capfd.readouterr().err
