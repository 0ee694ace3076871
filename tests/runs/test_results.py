"""Finished runs as lines of text."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedskew import Run, simulate
from fedskew.runs.results import Result, Results, question, read_lines, write_lines
from fedskew.runs.store import Store, StoreError
from fedskew.runs.versions import RESULT_VERSION

FIELDS = {"dataset": "digits", "clients": 4, "partition": "iid", "model": "logistic"}


def finished(store: Store, **more: object) -> Result:
    run = Run(**{**FIELDS, "rounds": 3, **more})
    list(simulate(run, store=store))
    return Result.of(store.folder(run.hash))[-1]


def test_a_line_reads_back_as_it_was(tmp_path: Path) -> None:
    result = finished(Store(tmp_path / "runs"))
    assert write_lines(tmp_path / "kept.jsonl", [result]) == 1
    assert read_lines(tmp_path / "kept.jsonl") == [result]
    assert result.rounds == 3
    assert result.device == "cpu"
    assert result.curve[-1][0] == 3
    assert result.summary["partition_hash"]
    assert result.run["seed"] == 0


def test_an_unfinished_run_is_no_result(tmp_path: Path) -> None:
    store, run = Store(tmp_path), Run(**FIELDS, rounds=3)
    records = simulate(run, store=store)
    next(records)
    records.close()  # type: ignore[attr-defined]
    assert Result.of(store.folder(run.hash)) == []
    assert list(Results(store)) == []


def test_a_diverged_run_is_a_result(tmp_path: Path) -> None:
    result = finished(Store(tmp_path), lr=1e20, weight_decay=1e20, rounds=5)
    assert result.summary["diverged"]
    assert result.summary["rounds"] < 5


def test_every_length_asked_for_is_a_result_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    short, long = finished(store), finished(store, rounds=5)
    assert short.hash == long.hash
    assert [result.rounds for result in Results(store)] == [3, 5]
    assert short.summary == Results(store).exactly(short.run)[0].summary
    write_lines(tmp_path / "kept.jsonl", [short])
    assert write_lines(tmp_path / "kept.jsonl", [long]) == 2


def test_a_shorter_length_asked_for_later_is_noted_without_work(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finished(store, rounds=15)
    finished(store, rounds=4)
    assert [result.rounds for result in Results(store)] == [4, 15]


def test_an_extension_that_is_interrupted_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = finished(store)
    records = simulate(Run(**FIELDS, rounds=9), store=store)
    for _ in range(5):
        next(records)
    records.close()  # type: ignore[attr-defined]
    (after,) = Result.of(store.folder(before.hash))
    assert after.rounds == 3
    assert after.summary == before.summary


def test_measurements_belong_to_the_model_of_a_round(tmp_path: Path) -> None:
    store = Store(tmp_path)
    result = finished(store)
    store.folder(result.hash).write_measured(3, {"x": {"value": 1}})
    assert finished(store).measured == {"x": {"value": 1}}
    assert finished(store, rounds=5).measured == {}
    write_lines(tmp_path / "kept.jsonl", [replace(result, measured={"y": 2})])
    write_lines(tmp_path / "kept.jsonl", [replace(result, measured={"x": 1})])
    assert read_lines(tmp_path / "kept.jsonl")[0].measured == {"x": 1, "y": 2}


def test_one_arithmetic_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finished(store)
    exact = finished(store, precision="fp64")
    results = Results(store)
    assert results.precisions == ["fp32", "fp64"]
    assert list(results.only("fp64")) == [exact]
    assert len(list(results.only(None))) == 2


def test_seed_length_and_arithmetic_are_not_the_question(tmp_path: Path) -> None:
    asked = question(Run(**FIELDS).model_dump())
    assert asked == question(Run(**FIELDS, seed=3, rounds=9, precision="bf16", engine="serial").model_dump())
    assert asked != question(Run(**FIELDS, lr=0.02).model_dump())
    assert asked != question(Run(**FIELDS, validation=0.1).model_dump())


def test_store_and_published_lines_together_and_other_versions_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    first = finished(store)
    second = finished(Store(tmp_path / "elsewhere"), seed=1)
    old = replace(second, hash="0" * 16, result_version=RESULT_VERSION - 1)
    write_lines(tmp_path / "published" / "x.jsonl", [second, old])
    results = Results(store, tmp_path / "published")
    assert {r.hash for r in results.answering(first.run)} == {first.hash, second.hash}
    assert results.of_other_versions(first.run) == 1
    assert old.hash not in {result.hash for result in results}


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    write_lines(path, [finished(Store(tmp_path / "runs"))])
    path.write_text(path.read_text() + '{"hash": 1}\n')
    with pytest.raises(StoreError, match="line 2"):
        read_lines(path)


def test_a_damaged_run_in_the_store_is_left_out_and_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept, broken = finished(store), finished(store, seed=1)
    (tmp_path / broken.hash / "run.json").write_text("{")
    results = Results(store)
    assert [result.hash for result in results] == [kept.hash]
    assert broken.hash in results.problems[0]
