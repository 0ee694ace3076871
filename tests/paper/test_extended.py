"""`paper run --extend`: what shown tables lack."""

from dataclasses import replace

import pytest

from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.extended import Extended
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import NOTHING
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from fedskew.runs.versions import result_version
from tests.paper.test_tables import Known, result

TABLE, CELL = TABLES["table1"], "cifar10/dirichlet:0.5"
ASKED = Choice(cells=(CELL,), seeds=3)
SHORT = Choice(rounds=200, fields={"precision": "bf16"})


def finished(run: Run, accuracy: float = 0.5, loss: float | None = None) -> Result:
    found = result(run, accuracy, loss=1 - accuracy if loss is None else loss)
    return replace(found, result_version=result_version(run.algorithm))


def known(**accuracies: float) -> Results:
    """First seeds of methods, 200 rounds in bf16."""
    return Known([finished(TABLE.run(CELL, name, SHORT), accuracy) for name, accuracy in accuracies.items()])


def lacking(results: Results, choice: Choice = ASKED, within: float | None = None) -> list[tuple[str, int]]:
    runs = Extended([TABLE], within).runs(choice, results)
    assert len(runs) == len(set(runs))
    return sorted((run.short_algorithm, run.seed) for run in runs)


def test_an_empty_table_lacks_the_first_seed_of_the_papers_methods_in_full_length() -> None:
    runs = Extended([TABLE]).runs(ASKED, NOTHING)
    assert runs == TABLE.runs(replace(ASKED, seeds=1))
    assert {run.rounds for run in runs} == {400}


def test_runs_have_the_length_and_arithmetic_of_their_cell() -> None:
    runs = Extended([TABLE]).runs(ASKED, known(fedavg=0.5, fedlc=0.6))
    assert {(run.rounds, run.precision) for run in runs} == {(200, "bf16")}


def test_known_runs_are_not_asked_for_again_and_known_methods_get_more_seeds() -> None:
    found = lacking(known(fedavg=0.5, fedlc=0.6, feddyn=0.7))
    more = [(name, seed) for name in ("fedavg", "feddyn", "fedlc") for seed in (1, 2)]
    first = [(name, 0) for name in TABLE.methods if name not in ("fedavg", "fedlc")]
    assert found == sorted([*more, *first])  # feddyn, which the paper does not have, because it has a seed


def test_within_leaves_out_methods_that_are_far_from_fedavg_and_from_the_best() -> None:
    results = known(fedavg=0.5, fedprox=0.53, fedlc=0.531, fedrs=0.47, fedopt=0.6, scaffold=0.571)
    methods = ("fedprox", "fedlc", "fedrs", "fedopt", "scaffold")
    close = replace(ASKED, methods=methods)
    found = lacking(results, close, 3.0)
    assert found == [(name, s) for name in ("fedavg", "fedopt", "fedprox", "fedrs", "scaffold") for s in (1, 2)]
    assert lacking(results, replace(ASKED, methods=("fedlc",)), 3.0) == []  # so FedAvg needs no seed either
    assert lacking(results, replace(ASKED, methods=("fedlc",)), 3.2) == [
        (name, s) for name in ("fedavg", "fedlc") for s in (1, 2)
    ]


def test_a_wrong_method_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'fedlcc'"):
        lacking(NOTHING, replace(ASKED, methods=("fedlcc",)))


@pytest.mark.parametrize("within", [None, 3.0])
def test_a_method_that_computes_the_same_as_fedavg_needs_no_more_seeds(within: float | None) -> None:
    ends = {"fedavg": (0.5, 1.0), "fednova": (0.5, 1.0), "fedprox": (0.5, 1.001)}
    results = Known([finished(TABLE.run(CELL, name, SHORT), *end) for name, end in ends.items()])
    asked = replace(ASKED, methods=("fednova", "fedprox"))
    assert lacking(results, asked, within) == [(name, s) for name in ("fedavg", "fedprox") for s in (1, 2)]


def test_the_same_as_fedavg_means_in_the_arithmetic_of_the_cell() -> None:
    """FedAvg was run in fp32 as well, where its loss is another."""
    ends = {"fedavg": (0.5, 1.0), "fednova": (0.5, 1.0)}
    shown = [finished(TABLE.run(CELL, name, SHORT), *end) for name, end in ends.items()]
    also = finished(TABLE.run(CELL, "fedavg", replace(SHORT, fields={"precision": "fp32"})), 0.5, 1.1)
    asked = replace(ASKED, methods=("fednova",))
    for results in ([*shown, also], [also, *shown]):
        assert lacking(Known(results), asked) == []


def test_a_first_seed_that_diverged_is_not_the_same_as_another_that_did() -> None:
    first = [TABLE.run(CELL, name, SHORT) for name in ("fedavg", "fedlc")]
    lost = [result(run, loss=None, diverged=True) for run in first]
    later = [finished(run.model_copy(update={"seed": 1}), 0.5 + n / 100) for n, run in enumerate(first)]
    found = lacking(Known([*lost, *later]), replace(ASKED, methods=("fedlc",)))
    assert found == [("fedavg", 2), ("fedlc", 2)]


def test_a_method_without_fedavg_waits_for_it() -> None:
    results = known(fedlc=0.5)
    assert lacking(results, replace(ASKED, methods=("fedlc",)), 3.0) == [("fedavg", 0)]


def test_it_ends() -> None:
    """What is asked for, once done, is not asked for again, and nothing is left after a few passes."""
    done: list[Run] = []
    for _ in range(4):
        results = [finished(run, 0.5 + TABLE.methods.index(run.short_algorithm) / 1000) for run in done]
        runs = Extended([TABLE], 3.0).runs(ASKED, Known(results))
        assert Extended([TABLE], 3.0).settled(ASKED, Known(results)) == (not runs)
        assert not set(runs) & set(done)
        done += runs
    assert not runs
    assert len(done) == 3 * len(TABLE.methods)


def test_a_profile_with_tries_is_refused() -> None:
    with pytest.raises(ValueError, match="profile tuned tries variants first; allowed"):
        Extended([TABLE]).runs(replace(ASKED, profile=PROFILES["tuned"]), NOTHING)
