"""Modules of the user's own that a file imports are part of what the file is."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedskew import Run, Store, simulate
from fedskew.core import spec
from fedskew.core.modules import imported_files
from fedskew.runs.origin import check_files
from fedskew.runs.store import StoreError

LOSS = """
{imports}
from fedskew import cross_entropy

def scaled(logits, labels, counts):
    return SCALE * cross_entropy(logits, labels, counts)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which Python finds modules; afterwards it has forgotten them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedskew.core.modules._read", {})
    yield tmp_path
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith(("_fedskew_user", "mine_"))]:
        del sys.modules[name]
    spec._imported.cache_clear()


def digest_of(path: Path) -> str | None:
    return spec.resolve(f"{path}:scaled", "algorithm", {}, finished=(("logits", "labels", "counts"),)).file_sha256


def anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What another process makes of the file."""
    forget()
    monkeypatch.setattr("fedskew.core.modules._read", {})
    return digest_of(path)


def test_a_file_without_own_imports_is_its_bytes(folder: Path) -> None:
    path = folder / "own_loss.py"
    path.write_text(LOSS.format(imports="import math, torch\nfrom torch.nn import functional as F\nSCALE = 2"))
    assert digest_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert imported_files(path) == {}


@pytest.mark.parametrize(
    "imports",
    [
        "from mine_scale import SCALE",
        "import mine_scale\nSCALE = mine_scale.SCALE",
        "from mine_pack import SCALE",
        "from mine_pack.inner import SCALE",
        "import mine_pack.inner\nSCALE = mine_pack.SCALE",
        "def late():\n    from mine_pack import inner\n    return inner.SCALE\nSCALE = 1",
    ],
)
def test_a_changed_module_is_another_file(imports: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directly, in a package, relative, through another module, and inside a function."""
    (folder / "mine_scale.py").write_text("SCALE = 2.0\n")
    (folder / "mine_pack").mkdir()
    (folder / "mine_pack" / "__init__.py").write_text("from .inner import SCALE\n")
    (folder / "mine_pack" / "inner.py").write_text("from mine_scale import SCALE\n")
    path = folder / "own_loss.py"
    path.write_text(LOSS.format(imports=imports))
    first = digest_of(path)
    assert first != hashlib.sha256(path.read_bytes()).hexdigest()
    assert anew(path, monkeypatch) == first
    (folder / "mine_scale.py").write_text("SCALE = 0.5 * 3\n")
    assert anew(path, monkeypatch) != first


def test_a_module_that_changes_under_a_process_is_refused(folder: Path) -> None:
    (folder / "mine_scale.py").write_text("SCALE = 2.0\n")
    path = folder / "own_loss.py"
    path.write_text(LOSS.format(imports="from mine_scale import SCALE"))
    digest_of(path)
    (folder / "mine_scale.py").write_text("SCALE = 0.5 * 3\n")
    with pytest.raises(ValueError, match=r"mine_scale\.py, which .*own_loss\.py imports, has changed since"):
        digest_of(path)


def test_a_run_with_a_changed_module_is_another_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine_scale.py").write_text("SCALE = 2.0\n")
    path = folder / "own_loss.py"
    path.write_text(LOSS.format(imports="from mine_scale import SCALE"))
    run = Run(dataset="digits", model="logistic", clients=3, rounds=1, algorithm=f"{path}:scaled")
    before, loss = run.hash, next(simulate(run, store=folder / "runs")).train_loss
    (folder / "mine_scale.py").write_text("SCALE = 0.5 * 3\n")
    anew(path, monkeypatch)
    assert run.hash != before
    assert next(simulate(run, store=folder / "runs")).train_loss < 0.9 * loss
    with pytest.raises(StoreError, match=r"different content of .*own_loss\.py, .*mine_scale\.py; restore"):
        check_files(Store(folder / "runs").folder(before), run)


def test_a_module_beside_the_file_that_python_does_not_find(tmp_path: Path) -> None:
    (tmp_path / "mine_lost.py").write_text("SCALE = 2.0\n")
    path = tmp_path / "own_loss.py"
    path.write_text(LOSS.format(imports="from mine_lost import SCALE"))
    with pytest.raises(ValueError, match=rf"No module named 'mine_lost'; mine_lost lies .*: set PYTHONPATH={tmp_path}"):
        digest_of(path)
    path.write_text(LOSS.format(imports="from mine_nowhere import SCALE"))
    with pytest.raises(ValueError, match=r"No module named 'mine_nowhere'$"):
        digest_of(path)
