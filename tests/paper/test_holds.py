"""Which claims hold: counted from made-up rows, and said from published ones."""

from typing import Any

import pytest

from docs.pages.claims import by_profile
from docs.pages.holds import Cell, cells, section
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from tests.paper.test_tables import Known, with_curve


def row(method: str, ours: float | None, printed: float | None, rounds: int = 400) -> dict[str, Any]:
    gain = {"mean": 1.0, "half": 0.5, "seeds": 3}
    known = {"rounds": rounds, "last_ten": ours, "gain": gain, "dataset": "cifar10", "hashes": [method]}
    known |= {"seeds": [0], "each_last_ten": [ours], "diverged": {}}
    return {"cell": "one", "method": method, "ours": known if ours is not None else None, "printed": {"mean": printed}}


def test_the_order_of_methods_is_compared_with_the_printed_one() -> None:
    same = [row("fedavg", 50, 40), row("fedrs", 60, 50), row("fedlc", 70, 60)]
    (cell,) = cells(same)
    assert (cell.first, cell.verdict, cell.agreement) == (True, "above", pytest.approx(1))
    other = [row("fedavg", 80, 40), row("fedrs", 60, 50), row("fedlc", 50, 60)]
    (cell,) = cells(other)
    assert (cell.first, cell.agreement) == (False, pytest.approx(-1))


def test_runs_of_another_length_and_too_few_methods_say_nothing_of_the_order() -> None:
    (cell,) = cells([row("fedavg", 50, 40), row("fedrs", 60, 50, rounds=100), row("fedlc", 70, 60)])
    assert not cell.ordered
    assert cell.agreement is None
    assert not list(cells([row("fedavg", 50, 40), row("fedlc", None, 60)]))
    known = {"fedavg": {0: 1.0}, "fedrs": {0: 2.0}, "fedlc": {0: 3.0}}
    assert Cell("cifar10", 400, "above", (), known, {}).agreement is None


def test_the_order_is_that_of_the_seeds_that_all_methods_have() -> None:
    """The second seed, in which FedLC fails, is one that FedRS does not have."""
    rows = [row("fedavg", 50, 40), row("fedrs", 60, 50), row("fedlc", 40, 60)]
    rows[0]["ours"] |= {"seeds": [0, 1], "each_last_ten": [50, 50]}
    rows[2]["ours"] |= {"seeds": [0, 1], "each_last_ten": [70, 10]}
    (cell,) = cells(rows)
    assert (cell.ours, cell.seeds) == ({"fedavg": 50, "fedrs": 60, "fedlc": 70}, 1)
    assert not cell.first  # FedAvg is ahead over the two seeds that both have


def test_a_cell_of_two_tables_counts_once() -> None:
    usual = Choice(profile=PROFILES["usual"], rounds=200)
    cell = "cifar10/dirichlet:0.3"  # of tables 1 and 7
    assert cell in TABLES["table1"].cells
    assert cell in TABLES["table7"].cells
    runs = [
        with_curve(TABLES["table1"].run(cell, m, usual), (200, a)) for m, a in {"fedavg": 0.5, "fedlc": 0.6}.items()
    ]
    (*_, line) = "\n".join(section(Known(runs))).splitlines()
    assert line.startswith("| `usual` | cifar10 | 1 | 200 | not decided in 1 |")


def test_runs_that_two_profiles_ask_for_are_told_of_the_first() -> None:
    """Table 5 sets the local epochs, and SVHN has no mirror images, so `usual` and `drift` are one there."""
    table, cell = TABLES["table5"], "E=5/svhn/shards:5"
    choices = [Choice(profile=PROFILES[name], rounds=20) for name in ("usual", "drift")]
    runs = [table.run(cell, method, choices[0]) for method in ("fedavg", "fedlc")]
    assert [run.hash for run in runs] == [table.run(cell, method, choices[1]).hash for method in ("fedavg", "fedlc")]
    found = Known([with_curve(run, (20, 0.5)) for run in runs])
    told = {profile.name for profile, rows in by_profile(table.name, found) if any(row["ours"] for row in rows)}
    assert told == {"usual"}


def test_without_runs_there_is_no_section() -> None:
    assert not list(section(Known([])))
