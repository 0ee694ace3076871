"""Gains by balanced accuracy, where it is not the accuracy."""

from docs.pages.balanced import section
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.runs.results import Result
from tests.paper.test_tables import Known, result

CELLS = ("svhn/dirichlet:0.1", "cifar10/dirichlet:0.1")
ACCURACY = {"fedavg": 0.5, "fedlc": 0.5}
BALANCED = {"fedavg": 0.4, "fedlc": 0.45}


def known(*cells: str, seeds: int = 3) -> list[Result]:
    found = []
    for method, accuracy in ACCURACY.items():
        choice = Choice(cells, (method,), seeds, profile=PROFILES["usual"])
        for run in TABLES["table1"].runs(choice):
            apart = (0.01 * run.seed if method == "fedlc" else 0.0) if "svhn" in run.dataset else 0.0
            balanced = BALANCED[method] + apart if "svhn" in run.dataset else accuracy
            found.append(result(run, accuracy, balanced_accuracy=balanced))
    return found


def test_only_cells_whose_classes_differ_in_frequency_are_shown_with_both_measures() -> None:
    head, text, table = section(Known(known(*CELLS)))
    assert head.startswith("## ")
    assert "by both measures" in text
    assert table.splitlines()[2:] == [
        "| svhn D(0.1) | `usual` | +0.00 [+0.00, +0.00] tied | +6.00 [+3.52, +8.48] above | - | - |"
    ]


def test_one_seed_has_no_verdict_and_a_diverged_one_counts() -> None:
    *_, table = section(Known(known(CELLS[0], seeds=1)))
    assert "| +0.00 | +5.00 | - | - |" in table
    broken = [
        result(TABLES["table1"].run(CELLS[0], "fedlc", Choice(profile=PROFILES["usual"])), 0.5, diverged=True),
        *(one for one in known(CELLS[0], seeds=4) if (one.short["algorithm"], one.seed) != ("fedlc", 0)),
    ]
    *_, table = section(Known(broken))
    assert "| +7.00 [+4.52, +9.48] open |" in table, "a seed was lost"


def test_nothing_is_shown_where_both_measures_are_equal() -> None:
    assert not list(section(Known(known(CELLS[1]))))
    assert not list(section(Known([])))
