"""The map: what is run, what is chosen, what is said."""

from pathlib import Path

import pytest

from fedskew import Run
from fedskew.paper import mapped
from fedskew.paper.choice import Choice
from fedskew.paper.map import BASES, RIVALS, Map, margins
from fedskew.paper.map_text import sentences
from tests.paper.test_tables import Known, result

CELL = "cifar10/dirichlet:0.1"
CHOICE = Choice(seeds=1)


def full_map(**more: object) -> Map:
    return Map(mapped(CELL), CELL, (1.0, 5.0), **more)  # type: ignore[arg-type]


def known(asked: Map, scores: dict[str, float]) -> Known:
    """Results of the margin part; a spec's score, else a half."""
    found = []
    for base in BASES:
        for text in (*RIVALS, *margins(asked.taus)):
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
    assert asked.best(CHOICE, results, asked.taus) == floor
    varied = {run.algorithm for run in asked.runs(CHOICE, results) if run.algorithm.startswith("fedlc")}
    assert varied == {Run(algorithm=floor).algorithm, Run(algorithm=f"{floor},denominator=others").algorithm}


def test_one_assumption_at_a_time() -> None:
    asked = full_map(parts=("around",))
    plain = asked.run(BASES[0], "fedavg", CHOICE).model_dump()
    for run in asked.runs(CHOICE, known(asked, {})):
        if run.algorithm == "fedavg":
            changed = {name for name, value in run.model_dump().items() if value != plain[name]}
            assert len(changed - {"rounds", "eval_every"}) == 1, changed


def test_rows_sentences_and_the_picture(tmp_path: Path) -> None:
    asked = full_map()
    results = known(asked, {f"{BASES[1].name}/fedlc:tau=5,missing=floor": 0.7, f"{BASES[0].name}/fedavg": 0.6})
    rows = asked.rows(results, CHOICE)
    said = "\n".join(sentences(rows))
    assert (
        "rule floor, tau 5 (best on held-out examples), 70.00 %, against FedAvg, 50.00 %, is not decided: one seed, "
        "+20.00 (last round +20.00)." in said
    )
    assert "nothing changed: FedLC, 50.00 %, against FedAvg, 60.00 %, is not decided: one seed, -10.00 (last" in said
    made = asked.draw(rows, tmp_path / "map")
    assert [path.suffix for path in made] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in made)


def test_a_diverged_run_is_said_and_never_chosen() -> None:
    asked = full_map()
    best = "fedlc:tau=5,missing=floor"
    results = known(asked, {f"{base.name}/{best}": 0.9 for base in BASES})
    assert asked.best(CHOICE, results, asked.taus) == best
    for base in BASES:
        (found,) = results.answering(asked.run(base, best, CHOICE).model_dump())
        found.summary.update(diverged=True, rounds=3)
    assert asked.best(CHOICE, results, asked.taus) != best
    rows = asked.rows(results, CHOICE)
    assert [row["diverged"] for row in rows if row["algorithm"] == best] == [3, 3]
    only = [row for row in rows if row["method"] == "fedavg" or row["algorithm"] == best]
    assert any("tau 5 (best on held-out examples) diverged in round 3" in line for line in sentences(only))


def test_a_setting_is_never_held_against_the_fedavg_of_another() -> None:
    asked = full_map()
    results = known(asked, {})
    best = asked.best(CHOICE, results, asked.taus)
    assert best is not None
    fast = next(setting for setting in asked.settings(CHOICE) if setting.name == "lr 0.1")
    more = Known([*results, result(asked.run(fast, best, CHOICE), 0.9)])
    assert "lr 0.1: incomplete." in sentences(asked.rows(more, CHOICE))


def test_the_map_is_of_one_arithmetic() -> None:
    asked = full_map()
    half = [asked.run(base, text, CHOICE) for base in BASES for text in (*RIVALS, *margins(asked.taus))]
    half = [run.model_copy(update={"precision": "bf16"}) for run in half]
    one = asked.run(BASES[0], "fedavg", CHOICE)
    rows = asked.rows(Known([result(one, 0.9), *(result(run, 0.4) for run in half)]), CHOICE)
    assert {row["precision"] for row in rows} == {"bf16"}


def test_values_of_tau_that_were_not_run_do_not_hide_the_others() -> None:
    results = known(full_map(), {})
    usual = Map(mapped(CELL), CELL)
    assert usual.known_taus(CHOICE, results) == (1.0, 5.0)
    assert {row["part"] for row in usual.rows(results, CHOICE)} == {"margin", "around"}


def test_nothing_is_run_with_the_best_of_an_unfinished_search() -> None:
    results, usual = known(full_map(), {}), Map(mapped(CELL), CELL)
    assert full_map().settled(CHOICE, results)
    assert not usual.settled(CHOICE, results)
    assert set(usual.runs(CHOICE, results)) == set(usual.runs(CHOICE, Known([])))
    assert not Map(mapped(CELL), CELL, parts=("around",)).runs(CHOICE, results)


def test_stand_in_data_are_named_in_the_picture(tmp_path: Path) -> None:
    asked, choice = full_map(), Choice(seeds=1, stand_in=True, rounds=5)
    runs = [asked.run(base, text, choice) for base in BASES for text in (*RIVALS, *margins(asked.taus))]
    asked.draw(asked.rows(Known([result(run) for run in runs]), choice), tmp_path / "map")
    assert "STAND-IN DATA: digits" in (tmp_path / "map.svg").read_text()


def test_nothing_run_yet() -> None:
    assert full_map().rows(Known([]), CHOICE) == []
    assert sentences([]) == ["Nothing of this map has been run yet."]


@pytest.mark.parametrize("cell", ["cifar10/shards:2", "cifar10/dirichlet:0.5"])
def test_any_cell_has_a_map(cell: str) -> None:
    asked = Map(mapped(cell), cell, (1.0,))
    assert {run.partition.partition(":")[0] for run in asked.runs(CHOICE, Known([]))} == {cell[8:].partition(":")[0]}
