"""The map: what is run, what is chosen, what is said."""

from pathlib import Path

import pytest

from fedskew import Run
from fedskew.experiments.paper import table_of_cell
from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.paper.sensitivity import BASES, RIVALS, Map
from fedskew.report.sensitivity import sentences
from tests.experiments.paper.test_tables import Known, result

CELL = "cifar10/dirichlet:0.1"
CHOICE = Choice(seeds=1)


def full_map(**more: object) -> Map:
    return Map(table_of_cell(CELL), CELL, (1.0, 5.0), **more)  # type: ignore[arg-type]


def known(asked: Map, scores: dict[str, float]) -> Known:
    """Results of the margin part; a spec's score, else a half."""
    found = []
    for base in BASES:
        for text in (*RIVALS, *asked.margins()):
            run = asked.run(base, text, CHOICE)
            found.append(result(run, scores.get(f"{base.name}/{text}", 0.5)))
    return Known(found)


def test_first_the_margin_in_both_settings_then_the_rest() -> None:
    asked = full_map()
    first = asked.runs(CHOICE, Known([]))
    assert len(first) == len(BASES) * (len(RIVALS) + 4)
    assert {(run.local_epochs, run.momentum, run.rounds) for run in first} == {(1, 0.0, 100), (10, 0.9, 20)}
    assert {run.validation for run in first} == {0.1}
    then = asked.runs(CHOICE, known(asked, {}))
    assert len(set(then)) > len(set(first))
    assert set(first) <= set(then)


def test_the_margin_is_chosen_on_held_out_examples_over_both_settings() -> None:
    asked = full_map(parts=("around",))
    floor, mask = "fedlc:tau=5,missing=floor", "fedlc:tau=1,missing=mask"
    scores = {f"{BASES[0].name}/{mask}": 0.6, f"{BASES[1].name}/{floor}": 0.8}
    results = known(asked, scores)
    assert asked.best(CHOICE, results) == floor
    varied = {run.algorithm for run in asked.runs(CHOICE, results) if run.algorithm.startswith("fedlc")}
    assert varied == {Run(algorithm=floor).algorithm, Run(algorithm=f"{floor},denominator=others").algorithm}


def test_one_assumption_at_a_time() -> None:
    asked = full_map(parts=("around",))
    plain = asked.run(BASES[0], "fedavg", CHOICE).model_dump()
    for run in asked.runs(CHOICE, known(asked, {})):
        if run.algorithm == "fedavg":
            changed = {name for name, value in run.model_dump().items() if value != plain[name]}
            assert len(changed - {"rounds"}) == 1, changed


def test_rows_sentences_and_the_picture(tmp_path: Path) -> None:
    asked = full_map()
    results = known(asked, {f"{BASES[1].name}/fedlc:tau=5,missing=floor": 0.7, f"{BASES[0].name}/fedavg": 0.6})
    rows = asked.rows(results, CHOICE)
    said = "\n".join(sentences(rows))
    assert "tau 5, 70.00 % on the test set against FedAvg's 50.00 % (+20.00)" in said
    assert "nothing changed: FedLC 50.00 % is below FedAvg's 60.00 % (-10.00)." in said
    made = asked.draw(rows, tmp_path / "map")
    assert [path.suffix for path in made] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in made)


def test_a_diverged_run_is_said_and_never_chosen() -> None:
    asked = full_map()
    results = known(asked, {})
    worst = asked.run(BASES[0], "fedlc:tau=5,missing=floor", CHOICE)
    (found,) = results.answering(worst.model_dump())
    found.summary.update(diverged=True, rounds=3)
    assert asked.best(CHOICE, results) != "fedlc:tau=5,missing=floor"
    row = next(r for r in asked.rows(results, CHOICE) if r["hash"] == worst.hash)
    assert row["test"] is None
    assert row["diverged"] == 3


def test_nothing_run_yet() -> None:
    assert full_map().rows(Known([]), CHOICE) == []
    assert sentences([]) == ["Nothing of this map has been run yet."]


@pytest.mark.parametrize("cell", ["cifar10/shards:2", "cifar10/dirichlet:0.5"])
def test_any_cell_has_a_map(cell: str) -> None:
    asked = Map(table_of_cell(cell), cell, (1.0,))
    assert {run.partition.partition(":")[0] for run in asked.runs(CHOICE, Known([]))} == {cell[8:].partition(":")[0]}
