"""Which claims hold: counted from made-up rows, and said from published ones."""

from typing import Any

import pytest

from docs.pages.holds import Cell, cells, section
from tests.paper.test_tables import Known


def row(method: str, ours: float | None, printed: float | None, rounds: int = 400) -> dict[str, Any]:
    gain = {"mean": 1.0, "half": 0.5, "seeds": 3}
    known = {"rounds": rounds, "last_ten": ours, "gain": gain, "dataset": "cifar10"}
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
    assert Cell("cifar10", "above", {"fedavg": 1.0, "fedrs": 2.0, "fedlc": 3.0}, {}).agreement is None


def test_without_runs_there_is_no_section() -> None:
    assert not list(section(Known([])))
