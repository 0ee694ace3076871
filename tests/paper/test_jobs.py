"""What `paper run all --jobs` does first, and how the machine is shared."""

import os

import pytest

from fedskew.core.ranks import JOBS, machine_share
from fedskew.paper import ITEMS, Everything
from fedskew.paper.choice import Choice
from fedskew.paper.jobs import by_need, check_jobs, threads_each
from fedskew.paper.table import NOTHING

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


@pytest.mark.parametrize("jobs", [0, -1, 257])
def test_a_wrong_number_of_jobs(jobs: int) -> None:
    with pytest.raises(ValueError, match=f"jobs is {jobs}; allowed: 1 to 256"):
        check_jobs(jobs)
