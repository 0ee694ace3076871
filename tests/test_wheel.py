"""The wheel in an environment of its own: nothing of this checkout is on the path, and everything it needs is in it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.waiting import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
SETTINGS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
Ran = subprocess.CompletedProcess[str]
Command = Callable[..., Ran]


def ran(*command: str | Path, cwd: Path) -> Ran:
    """What a command that must succeed printed, run where no setting points to this checkout."""
    there = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(command, cwd=cwd, env=there, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that nothing left in build/ gets in and nothing is written here."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(SOURCE, folder / "source/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
    ran(sys.executable, *build, str(folder / "source"), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it. The dependencies are those of the tests, found through a path.

    A .pth file adds folders to the path and leaves the .pth files in them unread, so an editable fedskew is not found.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    asked = ran(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    own = Path(asked.stdout.strip())
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(installed)))
    options = ("--no-deps", "--no-index", "--ignore-installed", "--quiet")
    ran(sys.executable, "-m", "pip", "--python", str(interpreter), "install", *options, str(wheel), cwd=folder)
    return interpreter


@pytest.fixture(scope="module")
def fedskew(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command of the new environment, in an empty folder."""
    folder = tmp_path_factory.mktemp("user")
    return lambda *words: ran(python.with_name("fedskew"), *words, cwd=folder)


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Also json, page assets and py.typed: a file in src that package-data forgets is missing here."""
    kept = {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "fedskew").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in kept} >= {".py", ".json", ".html", ".css", ".js", ".typed"}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedskew/")}
    assert packed == kept


def test_the_package_is_the_one_of_the_wheel(python: Path) -> None:
    code = "import fedskew, sys; print(fedskew.__file__); print(*sys.path, sep='\\n')"
    found, *path = ran(python, "-c", code, cwd=python.parent).stdout.splitlines()
    assert Path(found).is_relative_to(python.parents[1])
    assert not {str(ROOT), str(SOURCE)} & set(path)


def test_a_first_session(fedskew: Command, tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    page = tmp_path / "report.html"
    assert version in fedskew("--version").stdout
    assert "fedlc" in fedskew("methods").stdout
    fedskew("run", "--dataset", "digits", "--clients", "3", "--rounds", "2", "--algorithm", "fedlc")
    fedskew("report", "--out", str(page))
    assert "fedlc" in page.read_text()
    assert "table4" in fedskew("paper", "list").stdout
