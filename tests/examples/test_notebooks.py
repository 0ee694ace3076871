"""The notebooks run from their first cell to their last, as a kernel runs them."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from tests.helpers.notebooks import code_cells, run_cell

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)

    def run(name: str) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for source in code_cells(EXAMPLES / name):
            run_cell(source, namespace)
        return namespace

    yield run
    plt.close("all")


def test_there_is_a_test_for_each() -> None:
    assert sorted(path.name for path in EXAMPLES.rglob("*.ipynb")) == ["own_method.ipynb", "quick_start.ipynb"]


def test_quick_start(run_notebook: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_notebook("quick_start.ipynb")
    said, true = (line.split()[1:] for line in capsys.readouterr().out.splitlines()[-2:])
    assert sum(a == b for a, b in zip(said, true, strict=True)) >= 5
    assert list(found["compared"]) == ["fedavg", "fedlc:tau=1", "fedlc:tau=1+scaffold"]
    assert [line.get_label() for line in found["axes"].lines] == list(found["compared"])


def test_own_method(run_notebook: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_notebook("own_method.ipynb")
    hash, algorithm, model, dataset = capsys.readouterr().out.splitlines()[-4:]
    assert hash == found["own"].hash
    assert (algorithm.partition("@")[0], model.partition("@")[0], dataset.partition("@")[0]) == (
        "rare",
        "network",
        "data",
    )
    assert list(found["compared"]) == ["fedavg", "fedlc:tau=1", "rare", "rare+scaffold"]
    assert all(seed.accuracy > 0.5 for name in found["compared"] for seed in found["compared"][name])
