"""What `paper run all --jobs` does first, and how the machine is shared."""

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from fedskew.core.ranks import JOBS, machine_share
from fedskew.paper import ITEMS, Everything
from fedskew.paper import jobs as jobs_module
from fedskew.paper.choice import Choice
from fedskew.paper.execute import Problem
from fedskew.paper.jobs import by_need, check_jobs, in_jobs, threads_each
from fedskew.paper.table import NOTHING
from fedskew.runs.run import Run
from fedskew.runs.store import Store

FEW = Choice(seeds=2, rounds=1, stand_in=True)


def test_everything_is_what_all_items_need() -> None:
    wanted = set(Everything().runs(FEW, NOTHING))
    for item in ITEMS.values():
        assert set(item.runs(FEW, NOTHING)) <= wanted


def test_the_first_seed_of_everything_comes_first() -> None:
    runs = ITEMS["table1"].runs(FEW, NOTHING)
    ordered = [run for (run,) in by_need([runs])]
    assert sorted(run.hash for run in ordered) == sorted(run.hash for run in runs)
    seeds = [run.seed for run in ordered]
    assert seeds == sorted(seeds)
    first = [run for run in ordered if run.seed == 0]
    assert first == [run for run in runs if run.seed == 0]  # and within a seed the item's own order


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
    """Each run is reported, and those after it get a new process."""
    monkeypatch.setattr(jobs_module, "work", dies)
    runs = [Run(clients=2, rounds=1, seed=seed) for seed in range(2)]
    found = list(in_jobs([runs], Store(tmp_path / "runs"), jobs=1))
    assert found == [Problem((run,), "the process that did it ended with 7") for run in runs]


@pytest.mark.parametrize("jobs", [0, -1, 257])
def test_a_wrong_number_of_jobs(jobs: int) -> None:
    with pytest.raises(ValueError, match=f"jobs is {jobs}; allowed: 1 to 256"):
        check_jobs(jobs)
