"""Where the distance to IID data lies, from models made up."""

from typing import Any

import pytest

from docs.pages.mended import mended, section
from fedskew.runs.results import Result
from tests.paper.test_chosen import run
from tests.paper.test_tables import result


def model(as_is: float, norms: float, head: float, algorithm: str = "fedavg", **more: Any) -> tuple[Any, Result]:
    one = result(run(algorithm, **more), as_is)
    repairs = {"as_is": as_is, "norms": norms, "head": head, "both": head}
    return {"hash": one.hash, "rounds": one.rounds, "repairs": repairs, "fit": "by hand"}, one


MODELS = [
    model(0.9, 0.89, 0.88, partition="iid"),
    model(0.5, 0.5, 0.7),
    model(0.6, 0.58, 0.7, seed=1),
    model(0.6, 0.59, 0.8, lr=0.03),
    model(0.4, 0.3, 0.5, "fedlc", partition="shards:2"),
]
LINES, RUNS = ([pair[i] for pair in MODELS] for i in (0, 1))


def test_models_are_grouped_by_split_and_method_with_its_rate() -> None:
    found = mended(LINES, RUNS)
    assert [(one.cell, one.method, one.seeds) for one in found] == [
        ("dirichlet:0.1", "`fedavg`, lr 0.03", 1),
        ("dirichlet:0.1", "`fedavg`", 2),
        ("shards:2", "`fedlc`", 1),
        ("iid", "`fedavg`", 1),
    ]
    assert found[1].accuracy == pytest.approx({"as_is": 55, "norms": 54, "head": 70})


def test_shares_of_the_distance_are_computed() -> None:
    *_, rows, said = section(LINES, RUNS)
    assert "| D(0.1) | `fedavg` | 2 | 55.0 | 54.0 | 70.0 |" in rows
    assert "change skewed models by -10.0 to -1.0 points, -4.0 on average: they are not what is missing." in said
    assert (
        "which reach 90.0, a fitted last layer closes, for the methods of this table, which differ by split: "
        "54 % at D(0.1) (the best from 60.0 to 80.0), 20 % at Q(2)" in said
    )
    assert "On IID data itself, fitting the last layer changes accuracy by -2.0 points, -2.0 on average." in said


def test_helpful_statistics_are_called_so() -> None:
    pairs = [MODELS[0], model(0.5, 0.6, 0.7)]
    *_, said = section([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert "+10.0 points, +10.0 on average: they are a part of what is missing." in said
    assert "which differ by split; FedLC alone is not among them: " in said


def test_an_unknown_run_is_refused_and_no_models_are_no_section() -> None:
    with pytest.raises(ValueError, match=f"a model of run {LINES[0]['hash']} was mended, but no results"):
        list(section(LINES, RUNS[1:]))
    assert not list(section([], RUNS))


def test_the_section_says_how_the_layer_was_fitted_and_mixes_no_fits() -> None:
    assert "(by hand, in one place)." in list(section(LINES, RUNS))[1]
    with pytest.raises(ValueError, match="too many values"):
        list(section([*LINES, {**LINES[0], "fit": "otherwise"}], RUNS))
