"""The tables: their cells, their runs, and how figures are put together."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedskew import Run
from fedskew.paper import FIGURES, ITEMS, TABLES, mapped
from fedskew.paper.choice import Choice, chosen
from fedskew.paper.execute import missing, share, together
from fedskew.paper.formats import csv_text, latex, markdown
from fedskew.paper.profiles import PROFILES, find_profile
from fedskew.paper.table import answer, best_try, printed
from fedskew.runs.results import Result, Results, question
from fedskew.runs.store import Store
from fedskew.runs.verdict import Difference
from fedskew.runs.versions import RESULT_VERSION
from fedskew.simulation.execute import Problem, execute
from fedskew.simulation.session import simulate
from fedskew.simulation.tune import VALIDATION

SMALL = Choice(cells=("cifar10/dirichlet:0.5",), methods=("fedavg", "fedlc"), seeds=2, rounds=2, stand_in=True)


def result(run: Run, accuracy: float = 0.5, **more: Any) -> Result:
    names = ("accuracy", "balanced_accuracy", "accuracy_last10", "validation_accuracy")
    summary = {**dict.fromkeys(names, accuracy), "diverged": False, "rounds": run.rounds, "seconds": 1.0,
               "device": "cpu", "engine": "stacked", "partition_hash": "p" * 64}  # fmt: skip
    short = {**run.short, "title": run.title}
    return Result(run.hash, RESULT_VERSION, run.model_dump(), short, {**summary, **more}, [(run.rounds, accuracy)], [])


class Known(Results):
    """Results that a test made up."""

    def __init__(self, found: list[Result]) -> None:
        super().__init__()
        for one in found:
            self._by_question.setdefault(question(one.run), []).append(one)


def test_seven_tables_and_seven_figures() -> None:
    assert list(TABLES) == [f"table{n}" for n in range(1, 8)]
    assert list(FIGURES) == [f"figure{n}" for n in range(1, 8)]
    assert list(ITEMS) == [*TABLES, *FIGURES]


@pytest.mark.parametrize("name", TABLES)
def test_every_printed_figure_has_a_cell_and_every_cell_a_run(name: str) -> None:
    table = TABLES[name]
    for method, cells in printed(name).items():
        assert method in table.methods
        assert set(cells) == set(table.cells)
    runs = table.runs(Choice(seeds=1))
    assert len(runs) == len(set(runs)) == len(table.cells) * len(table.methods)
    assert {run.rounds for run in runs} == {300 if name == "table4" else 400}


@pytest.mark.parametrize(
    ("table", "method", "cell", "figures"),
    [
        ("table1", "fedlc", "cifar10/dirichlet:0.05", [54.55, 1.7]),
        ("table2", "fedavg", "cifar100/shards:80", [49.81, 1.84]),
        ("table3", "fedrs", "imagenet12/dirichlet:0.1", [47.23, None]),
        ("table4", "fedlc", "synthetic:1,1", [75.46, 0.52]),
        ("table5", "fednova", "E=10/svhn/shards:5", [89.53, None]),
        ("table6", "fedlc", "m=100", [43.81, None]),
        ("table7", "fedlc+fedprox", "svhn/shards:5", [90.32, None]),
    ],
)
def test_some_printed_figures(table: str, method: str, cell: str, figures: list[float | None]) -> None:
    assert printed(table)[method][cell] == figures


def test_a_cell_sets_what_it_is_about_whatever_the_profile() -> None:
    run = TABLES["table5"].run("E=5/svhn/shards:5", "fedlc", Choice(profile=PROFILES["drift"]))
    assert (run.local_epochs, run.momentum, run.clients, run.dataset) == (5, 0.9, 10, "svhn:extra=off")
    assert TABLES["table1"].run("svhn/dirichlet:0.1", "fedavg", Choice(profile=PROFILES["drift"])).local_epochs == 10


@pytest.mark.parametrize(
    ("table", "cell", "stand_in", "augment"),
    [
        ("table1", "cifar10/dirichlet:0.1", False, "crop_flip"),
        ("table1", "cifar10/dirichlet:0.1", True, "none"),
        ("table1", "svhn/dirichlet:0.1", False, "none"),
        ("table3", "imagenet12/dirichlet:0.1", False, "crop_flip"),
        ("table4", "synthetic:1,1", False, "none"),
    ],
)
def test_usual_mirrors_only_what_keeps_its_class(table: str, cell: str, stand_in: bool, augment: str) -> None:
    run = TABLES[table].run(cell, "fedavg", Choice(profile=PROFILES["usual"], stand_in=stand_in))
    assert (run.momentum, run.augment) == (0.9, augment)


def test_cells_are_chosen_by_name_by_data_set_and_with_commas() -> None:
    known = ["cifar10/a", "cifar10/b", "synthetic:0,0", "svhn/a"]
    assert chosen("cell", (), known) == known
    assert chosen("cell", ("cifar10",), known) == ["cifar10/a", "cifar10/b"]
    assert chosen("cell", ("svhn/a,cifar10/a", "synthetic:0,0"), known) == ["cifar10/a", "synthetic:0,0", "svhn/a"]
    with pytest.raises(ValueError, match=r"unknown cell 'cifar'.*known: cifar10/a"):
        chosen("cell", ("cifar",), known)


def test_names_with_commas_can_be_listed_with_commas() -> None:
    known = ["synthetic:0,0", "synthetic:0.5,0.5", "femnist"]
    assert chosen("cell", ("synthetic:0.5,0.5,synthetic:0,0",), known) == known[:2]
    assert chosen("cell", ("femnist, synthetic:0,0",), known) == ["synthetic:0,0", "femnist"]
    with pytest.raises(ValueError, match="unknown cell 'synthetic:0'"):
        chosen("cell", ("synthetic:0,1",), known)


def test_a_part_of_a_cells_name_stands_for_all_cells_that_have_it() -> None:
    known = ["E=1/cifar10/shards:5", "E=5/cifar10/dirichlet:0.5", "E=5/svhn/shards:5"]
    for part, meant in {"E=5": known[1:], "cifar10": known[:2], "E=5/svhn": known[2:], "shards": known[::2]}.items():
        assert chosen("cell", (part,), known) == meant
    assert chosen("cell", ("synthetic",), ["synthetic:0,0", "femnist"]) == ["synthetic:0,0"]
    with pytest.raises(ValueError, match="unknown cell 'E=1/shards:5'"):
        chosen("cell", ("E=1/shards:5",), known)


def test_a_method_is_chosen_by_its_whole_name() -> None:
    assert chosen("method", ("fedlc",), ["fedlc", "fedlc:travel=1"]) == ["fedlc"]


def test_runs_of_other_length_are_never_averaged() -> None:
    run = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedavg", Choice())
    short = [result(run.model_copy(update={"rounds": 60, "seed": s}), 0.4) for s in range(3)]
    full = [result(run.model_copy(update={"seed": s}), 0.5 + s / 100) for s in range(2)]
    ours = answer([*short, *full], 400)
    assert ours is not None
    assert ours["mean"] == pytest.approx(50.5)
    assert ours["std"] == pytest.approx(0.7071, abs=1e-4)
    assert ours["seeds"] == [0, 1]
    assert not ours["shortened"]
    shortened = answer([*short, *full], 400, rounds=60)
    assert shortened is not None
    assert shortened["shortened"]
    assert shortened["seeds"] == [0, 1, 2]
    assert answer(full, 300) is None  # longer than asked for is another question


def test_a_cell_is_of_the_length_that_most_runs_have() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=2)
    runs = [run.model_copy(update={"rounds": 200}) for run in table.runs(choice)]
    long = [table.run("cifar10/dirichlet:0.1", method, choice) for method in choice.methods]
    results = Known([*(result(run, 0.5) for run in runs), *(result(run, 0.7) for run in long)])
    rows = table.rows(results, choice)
    assert [(row["ours"]["rounds"], row["ours"]["seeds"]) for row in rows] == [(200, [0, 1])] * 2
    few = Known([result(runs[0], 0.5), *(result(run, 0.7) for run in long)])
    assert [row["ours"]["rounds"] for row in table.rows(few, choice)] == [400, 400]
    even = Known([result(runs[0], 0.5), result(long[1], 0.7)])  # the longest of equals; FedAvg has no such run
    assert [row["ours"] and row["ours"]["rounds"] for row in table.rows(even, choice)] == [None, 400]


def with_curve(run: Run, *points: tuple[int, float]) -> Result:
    return replace(result(run, points[-1][1]), curve=list(points))


def test_rounds_to_reach_and_the_iid_gap_of_a_cell() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=1)
    plain, calibrated = table.runs(choice)
    level = [run.model_copy(update={"partition": "iid"}) for run in (plain, calibrated)]
    skewed = [with_curve(plain, (10, 0.2), (400, 0.5)), with_curve(calibrated, (10, 0.3), (20, 0.5), (400, 0.6))]
    base, mine = table.rows(Known(skewed), choice)
    assert base["ours"]["rounds_to_reach"] == {"rounds": 400, "reached": 1, "seeds": 1}
    assert mine["ours"]["rounds_to_reach"] == {"rounds": 20, "reached": 1, "seeds": 1}
    assert (mine["ours"]["gap_closed"], mine["ours"]["iid_gain"], base["ours"]["gain"]) == (None, None, None)
    assert mine["ours"]["gain"] == {"mean": pytest.approx(10), "half": None, "seeds": 1, "lost": 0, "other_lost": 0}
    known = Known([*skewed, with_curve(level[0], (400, 0.7)), with_curve(level[1], (400, 0.71))])
    _, mine = table.rows(known, choice)
    assert mine["ours"]["gap_closed"] == {"share": pytest.approx(0.5), "gap": pytest.approx(0.2), "seeds": 1}
    assert mine["ours"]["iid_gain"]["mean"] == pytest.approx(1)
    (alone,) = table.rows(known, replace(choice, methods=("fedlc",), target=0.55))  # FedAvg counts, shown or not
    assert alone["ours"]["gap_closed"] == mine["ours"]["gap_closed"]
    assert alone["ours"]["rounds_to_reach"]["rounds"] == 400
    text = markdown(table.rows(known, choice))
    for line in ("| fedlc | +10.00 (+17.84) | +1.00 |", "| fedlc | 20 |", "| fedlc | 50 % |"):
        assert line in text.splitlines()
    (fields,) = csv.DictReader(csv_text([mine]).splitlines())
    assert (fields["rounds_to_reach"], fields["gain"]) == ("20", "10.0")
    assert float(fields["iid_gap_closed"]) == pytest.approx(0.5)
    assert r"fedlc & +10.00 (+17.84) & +1.00 \\" in latex(table.rows(known, choice))


def test_later_methods_are_shown_where_they_were_run_and_run_when_named() -> None:
    table, cell = TABLES["table1"], ("cifar10/dirichlet:0.1",)
    assert {run.algorithm for run in table.runs(Choice(cells=cell, seeds=1))} & set(table.beyond) == set()
    (run,) = table.runs(Choice(cells=cell, methods=("fedavgm",), seeds=1))
    assert run.short_algorithm == "fedavgm"
    shown = {row["method"] for row in table.rows(Known([result(run, 0.5)]), Choice(cells=cell))}
    assert shown == {*table.methods, "fedavgm"}
    old = Choice(cells=cell, methods=("scaffold:mean=uniform",), seeds=1)
    rows = table.rows(Known([result(table.runs(old)[0], 0.5)]), Choice(cells=cell, profile=PROFILES["tuned"]))
    assert not any(row["ours"] for row in rows)  # it was not tuned


def test_a_cell_is_of_one_arithmetic() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=1)
    plain, calibrated = table.runs(choice)
    half = [run.model_copy(update={"precision": "bf16"}) for run in (plain, calibrated)]
    results = Known([result(plain, 0.9), result(half[0], 0.4), result(half[1], 0.5)])
    assert [row["ours"]["mean"] for row in table.rows(results, choice)] == [40.0, 50.0]
    asked = replace(choice, fields={"precision": "fp32"})
    assert [row["ours"] and row["ours"]["mean"] for row in table.rows(results, asked)] == [90.0, None]


def test_more_rounds_than_the_paper_are_refused() -> None:
    with pytest.raises(ValueError, match="at most the paper's, 400"):
        TABLES["table1"].runs(Choice(rounds=500))


def test_a_diverged_seed_is_counted_apart() -> None:
    run = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedavg", Choice())
    gone = result(run.model_copy(update={"seed": 1}), 0.1, diverged=True, rounds=7)
    ours = answer([result(run, 0.5), gone], 400)
    assert ours is not None
    assert ours["mean"] == 50.0
    assert ours["diverged"] == {1: 7}
    alone = answer([gone], 400)
    assert alone is not None
    assert alone["mean"] is None


def test_a_diverged_seed_counts_against_its_method() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"))
    runs = table.runs(choice)
    found = [result(run, 0.5 if run.algorithm == "fedavg" else 0.6) for run in runs]
    assert table.rows(Known(found), choice)[1]["ours"]["gain"]["lost"] == 0
    gone = [one for one in found if one.run["algorithm"] != "fedavg" and one.seed > 2]
    for one in gone:
        one.summary["diverged"] = True
    rows = table.rows(Known(found), choice)
    gain = Difference(**rows[1]["ours"]["gain"])
    assert (gain.seeds, gain.lost, gain.verdict) == (3, 2, "open")
    assert rows[1]["ours"]["rounds_to_reach"]["seeds"] == 3
    assert "+10.00 [+10.00, +10.00] open (2 more diverged)" in markdown(rows)
    plain, lost = csv.DictReader(csv_text(rows).splitlines())
    assert (plain["diverged_seeds"], lost["diverged_seeds"]) == ("", "3 4")


def test_rows_hold_the_printed_figure_and_the_difference() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedlc",), seeds=1)
    (run,) = table.runs(choice)
    (row,) = table.rows(Known([result(run, 0.6)]), choice)
    assert row["printed"] == {"mean": 65.91, "std": 1.68}
    assert row["difference"] == pytest.approx(-5.91)
    assert row["ours"]["resolved"] == run.algorithm
    assert row["ours"]["hashes"] == [run.hash]
    (empty,) = table.rows(Known([]), choice)
    assert empty["ours"] is None
    assert empty["difference"] is None


def test_stand_in_data_have_no_printed_figure() -> None:
    rows = TABLES["table1"].rows(Known([]), SMALL)
    assert all(row["printed"]["mean"] is None for row in rows)
    assert {run.dataset for run in TABLES["table1"].runs(SMALL)} == {"digits"}


def test_tuned_tries_come_first_on_held_out_examples_and_settle_the_method() -> None:
    table = TABLES["table1"]
    choice = replace(SMALL, methods=("fedlc",), profile=PROFILES["tuned"])
    tries = table.runs(choice, Known([]))
    assert [run.validation for run in tries] == [VALIDATION] * 4
    assert len({run.algorithm for run in tries}) == 4
    scores = [result(run, score) for run, score in zip(tries, (0.2, 0.6, 0.6, 0.1), strict=True)]
    assert best_try(tries, Known(scores[:3])) is None
    settled = table.runs(choice, Known(scores))
    assert {run.algorithm for run in settled} == {tries[1].algorithm}  # the first of equals
    assert {run.validation for run in settled} == {0.0}
    other = [result(run.model_copy(update={"precision": "bf16"}), 1.0) for run in tries]
    assert table.settled(choice, Known(scores))
    assert not table.settled(choice, Known(other))
    assert {run.algorithm for run in table.runs(choice, Known([*other, *scores]))} == {tries[1].algorithm}
    final = [result(run, 0.7) for run in settled]
    (row,) = table.rows(Known([*scores, *final]), replace(choice, rounds=None))
    assert row["ours"]["mean"] == 70.0
    assert row["ours"]["rounds"] == 2
    assert [run.seed for run in settled] == [0, 1]


def test_every_method_gets_the_same_number_of_tries() -> None:
    tries = PROFILES["tuned"].tries
    assert {len(variants) for variants in tries.values()} == {4}
    assert set(tries) >= set(TABLES["table1"].methods) | set(TABLES["table7"].methods)
    for variants in tries.values():
        assert len({Run(algorithm=text).algorithm for text in variants}) == 4


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[run]\nlr = 0.05\n[methods]\nfedlc = "fedlc:tau=2"\n')
    run = TABLES["table1"].run("svhn/dirichlet:0.1", "fedlc", Choice(profile=find_profile(str(path))))
    assert run.lr == 0.05
    assert run.algorithm.startswith("fedlc:tau=2")
    path.write_text("[runs]\nlr = 1\n")
    with pytest.raises(ValueError, match="'runs'"):
        find_profile(str(path))
    with pytest.raises(ValueError, match="unknown profile 'staged': did you mean stated"):
        find_profile("staged")
    for wrong in ("[0.1]", "2020-01-01", "true"):
        path.write_text(f"[run]\nlr = {wrong}\n")
        with pytest.raises(ValueError, match="lr is "):
            TABLES["table1"].run("svhn/dirichlet:0.1", "fedlc", Choice(profile=find_profile(str(path))))


def test_a_run_that_a_table_asks_for_again_is_not_made_again() -> None:
    first, again = (TABLES["table1"].run("svhn/dirichlet:0.1", "fedlc", Choice()) for _ in range(2))
    assert first is again
    other = TABLES["table1"].run("svhn/dirichlet:0.1", "fedlc", Choice(), seed=1)
    assert (other.seed, first.seed) == (1, 0)


def test_shares_are_disjoint_and_together_everything() -> None:
    groups = together(TABLES["table1"].runs(Choice(seeds=2)))
    shares = [share(groups, f"{k}/5") for k in range(1, 6)]
    assert all(group in share(groups[7:], "2/5") for group in shares[1] if group in groups[7:])
    assert sorted(run.hash for part in shares for group in part for run in group) == sorted(
        run.hash for group in groups for run in group
    )
    for wrong in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(ValueError, match="shard"):
            share(groups, wrong)


def test_what_is_finished_is_not_asked_for_again(tmp_path: Path) -> None:
    store, table = Store(tmp_path), TABLES["table1"]
    before = missing(table, SMALL, "1/1", store, None, [])
    assert [len(group) for group in before] == [2, 2]
    list(simulate(before[0][1], store=store))
    after = missing(table, SMALL, "1/1", store, None, [])
    assert [[run.seed for run in group] for group in after] == [[0], [0, 1]]
    assert missing(table, SMALL, "1/1", store, None, [run for group in after for run in group]) == []


def test_a_group_that_fails_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    bad = Run(dataset="cifar10", model="cnn", rounds=1, data_dir=str(tmp_path / "nowhere"))
    good = Run(dataset="digits", rounds=1, clients=2, partition="iid")
    problem, event = list(execute([[bad], [good]], Store(tmp_path / "runs")))
    assert isinstance(problem, Problem)
    assert "fedskew data fetch cifar10" in problem.reason
    assert not isinstance(event, Problem)
    assert event[0] == good


def test_what_another_process_does_is_left_to_it(tmp_path: Path) -> None:
    store, run = Store(tmp_path), Run(dataset="digits", rounds=1, clients=2, partition="iid")
    list(simulate(run, store=store))
    with store.folder(run.hash).lock():
        (problem,) = execute([[run.model_copy(update={"rounds": 2})]], store)
    assert isinstance(problem, Problem)
    assert problem.busy


def test_cells_that_a_map_can_be_drawn_around() -> None:
    assert mapped("cifar10/shards:2").name == "table2"
    for cell in ("x", "femnist", "E=5/svhn/shards:5"):
        with pytest.raises(ValueError, match="unknown cell"):
            mapped(cell)


def test_the_printed_figures_are_plain_data() -> None:
    path = Path(__file__).parents[2] / "src/fedskew/paper/printed.json"
    assert set(json.loads(path.read_text())) == {"figure1", *TABLES}
