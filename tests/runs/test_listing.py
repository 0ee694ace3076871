"""What `fedskew runs` lists: what differs, what is asked for, and in which order."""

import os
from dataclasses import replace

import pytest

from fedskew.runs.listing import arguments, differing, in_order, listed, select
from fedskew.runs.store import Store
from tests.report.page_store import write_run


@pytest.fixture
def rows(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", algorithm="fedlc:tau=1.0", lr=0.1, gain=0.1)
    write_run(store, "b", algorithm="fedlc:tau=5.0", lr=0.1, gain=0.3)
    write_run(store, "c", algorithm="fedavg", lr=0.01, gain=0.2, device="cuda")
    write_run(store, "d", algorithm="fedavg", lr=0.1, done=3, seed=1)
    for age, name in enumerate("dcba"):
        os.utime(tmp_path / name / "records.jsonl", (1e9 - age, 1e9 - age))
    return [listed(folder) for folder in store]


def names(rows):
    return "".join(row.hash for row in rows)


def test_only_what_differs_and_decides_a_result_is_told(rows):
    assert differing(rows) == ["tau", "lr"]
    assert differing(rows[2:]) == ["lr"]
    assert differing(rows[:1]) == []


def test_contents_of_the_users_files_are_told_where_they_differ(tmp_path):
    store = Store(tmp_path)
    for hash, content in (("a", "11"), ("b", "22")):
        write_run(store, hash, algorithm="mine.py:loss", contents=f"algorithm {content}")
    found = [listed(folder) for folder in store]
    assert differing(found) == ["algorithm_content"]
    assert names(select(found, ["algorithm_content=22"])) == "b"


def test_contents_are_not_told_where_names_tell_files_apart(tmp_path):
    store = Store(tmp_path)
    for hash, method, content in (("a", "mine", "11"), ("b", "two", "22"), ("c", "fedavg", None), ("d", "mine", "11")):
        contents = "model 33" if content is None else f"algorithm {content}, model 33"
        write_run(store, hash, algorithm=method, contents=contents, seed=ord(hash))
    assert differing([listed(folder) for folder in store]) == []


def test_a_method_of_ones_own_is_found_as_it_was_written_and_as_it_is_listed(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", algorithm="mine.py:loss,power=2", called="loss:power=2")
    write_run(store, "b", algorithm="mine.py:other,power=2+scaffold", called="other:power=2+scaffold")
    found = [listed(folder) for folder in store]
    for where in ("mine.py:loss", "mine.py:loss,power=2", "loss", "loss:power=2"):
        assert names(select(found, [f"algorithm={where}"])) == "a"
    assert names(select(found, ["algorithm=mine.py:other+scaffold"])) == "b"


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (["lr=0.1"], "abd"),
        (["lr=1e-1", "algorithm=fedlc"], "ab"),
        (["algorithm=fedlc:tau=5.0"], "b"),
        (["tau=1"], "a"),
        (["tau=2"], ""),
        (["batch-size=16", "seed=1"], "d"),
        (["lr=high"], ""),
        (["grad_clip=none"], "abcd"),
        (["partition=dirichlet"], "abcd"),
    ],
)
def test_conditions(rows, where, kept):
    assert names(select(rows, where)) == kept


def test_states(rows):
    assert names(select(rows, state="done")) == "abc"
    assert names(select(rows, ["lr=0.1"], "unfinished")) == "d"


@pytest.mark.parametrize(
    ("by", "order"), [("accuracy", "bcad"), ("date", "dcba"), ("lr", "cabd"), ("tau", "abcd"), (None, "cdab")]
)
def test_order(rows, by, order):
    assert names(in_order(rows, by)) == order


def test_runs_that_hold_out_examples_are_not_ranked_on_the_test_set(rows):
    tries = [replace(row, held_out=held) for row, held in zip(rows, (0.5, None, 0.7, None), strict=True)]
    assert names(in_order(tries, "accuracy")) == names(
        [*in_order([tries[1], tries[3]], "accuracy"), tries[0], tries[2]]
    )
    assert names(in_order(tries, "held_out"))[:2] == names([tries[2], tries[0]])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"where": ["lr"]}, "where is 'lr'; allowed: NAME=VALUE"),
        ({"where": ["rate=1"]}, "where names 'rate'; allowed: .*lr"),
        ({"state": "over"}, "state is 'over'; allowed: done"),
    ],
)
def test_wrong_conditions_say_what_is_allowed(rows, asked, said):
    with pytest.raises(ValueError, match=said):
        select(rows, **asked)


def test_a_wrong_sort_says_what_is_allowed(rows):
    with pytest.raises(ValueError, match="sort names 'size'; allowed: accuracy, held_out, date, "):
        in_order(rows, "size")


def test_unreadable_runs_are_listed_and_match_no_condition(tmp_path):
    store = Store(tmp_path)
    (write_run(store, "a").path / "run.json").write_text("?")
    write_run(store, "b")
    rows = [listed(folder) for folder in store]
    assert [row.state for row in rows] == ["unreadable", "done"]
    assert "problem" in rows[0].as_dict()
    assert names(select(rows, ["lr=0.1"])) == "b"
    assert names(select(rows, state="unreadable")) == "a"
    assert names(in_order(rows, "accuracy")) == "ba"


def test_arguments_of_a_combination():
    assert arguments("fedlc:tau=1.0+fedprox:mu=0.1") == {"tau": 1.0, "mu": 0.1}


def test_dates_are_those_of_the_last_record(rows):
    assert rows[3].as_dict()["written"] == "2001-09-09T01:46:40+00:00"
