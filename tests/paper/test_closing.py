"""How much of the IID gap methods close, in words and shares."""

from docs.pages.closing import SETTING, alone, closed, once, section
from docs.pages.depends import CELLS
from fedskew.paper import TABLES, mapped
from fedskew.paper.choice import Choice
from fedskew.runs.run import Run
from tests.paper.test_tables import Known, result

ACCURACY = {"fedavg": 0.5, "fedlc": 0.7, "fedrs": 0.4}


def runs(method: str, cell: str) -> list[Run]:
    choice = Choice(profile=SETTING.profile, rounds=SETTING.rounds, methods=(method,), cells=(cell,), seeds=3)
    return mapped(cell).runs(choice)


def known(*methods: str) -> Known:
    found = [result(run, ACCURACY[method]) for method in methods for cell in CELLS for run in runs(method, cell)]
    level = [run.model_copy(update={"partition": "iid"}) for run in runs("fedavg", CELLS[0])]
    return Known([*found, *(result(run, 0.9) for run in level)])


def test_shares_are_of_the_gap_and_the_best_is_first() -> None:
    found = closed(known("fedavg", "fedrs", "fedlc"))
    assert list(found) == ["fedlc", "fedrs", "fedavg"]
    assert {round(ours["gap_closed"]["share"], 6) for ours in found["fedlc"].values()} == {0.5}
    assert {round(ours["gap_closed"]["share"], 6) for ours in found["fedrs"].values()} == {-0.25}
    *_, last = section(known("fedavg", "fedrs", "fedlc"))
    assert last.startswith("`fedlc` closes most on average.")


def test_methods_are_compared_over_the_same_seeds() -> None:
    """A fourth seed is left out of the first table, and a method with one seed stands in the second."""
    lucky = [result(runs("fedlc", cell)[0].model_copy(update={"seed": 3}), 0.9) for cell in CELLS]
    single = [result(runs("fedprox", cell)[0], 0.55) for cell in CELLS]
    found = Known([*known("fedavg", "fedlc"), *lucky, *single])
    first, second = (part for made in (section, once) for part in made(found) if part.startswith("| method"))
    assert first.splitlines()[2:] == [
        "| `fedlc` " + "| 70.0 (50 %) " * 3 + "| - |",
        "| `fedavg` " + "| 50.0 (0 %) " * 3 + "| - |",
    ]
    assert [line.split("`")[1] for line in second.splitlines()[2:]] == ["fedlc", "fedprox", "fedavg"]


def test_without_runs_there_is_no_section() -> None:
    assert not [*section(Known([])), *once(Known([]))]
    assert not list(once(known("fedavg", "fedlc"))), "all seeds are in the first table"
    assert set(CELLS) <= {cell for table in TABLES.values() for cell in table.cells}


def test_what_methods_close_alone_is_told_with_all_seeds_and_in_a_range_with_one() -> None:
    many = closed(known("fedavg", "fedrs", "fedlc"))
    few = {"fedlc": many["fedlc"], "fedcm": many["fedrs"], "fedavg": many["fedavg"]}
    how, table, once = alone({"fedlc+fedrs": many["fedlc"], **many, "refit": many["fedlc"]}, few)
    assert "3 seeds" in how
    assert table.splitlines()[2:] == [
        "| `fedlc+fedrs` | 50 % | 50 % | 50 % | tied in D(0.05), D(0.1), Q(2): +0.0 | - |",
        "| `fedlc` | 50 % | 50 % | 50 % | - | - |",
        "| `fedrs` | -25 % | -25 % | -25 % | below in all: -30.0 | - |",
    ]
    assert once == "With the first seed alone, `fedcm` close -25 %."
    assert not list(alone({}, few))
