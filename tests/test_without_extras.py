"""The package with nothing installed but what it requires: what works, and what is said where an extra is needed."""

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement

from fedskew import Run
from tests.helpers.waiting import PATIENCE

ALONE = """
import contextlib, io, json, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent, commands = (json.loads(text) for text in sys.argv[1:])
sys.meta_path.insert(0, Absent())
from fedskew.cli import main

ends = []
for command in commands:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main(command)
        except SystemExit as end:
            ends.append((end.code, said.getvalue()))
print(json.dumps(ends))
"""
FIELDS = {"dataset": "digits", "clients": 3, "rounds": 1}
SMALL = [word for name, value in FIELDS.items() for word in (f"--{name}", str(value))]


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(name: str) -> set[str]:
    """A distribution and all that it requires without any extra."""
    found, left = set(), {distribution(name)}
    while left:
        found.add(now := left.pop())
        wanted = [Requirement(text) for text in requires(now) or []]
        left |= {distribution(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})} - found
    return found


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit code and the complaint of every command below, one after another in a process without the extras."""
    there = required("fedskew")
    known = packages_distributions().items()
    absent = [module for module, owners in known if not there & {distribution(name) for name in owners}]
    assert {"flwr", "ray", "mlflow", "tensorboard", "pyarrow", "pytest", "mypy"} <= set(absent)
    commands = {
        "run": ["run", *SMALL],
        "compare": ["compare", *SMALL, "--algorithm", "fedavg,fedlc"],
        "diagnose": ["diagnose", Run(**FIELDS).hash],
        "report": ["report", "--out", "report.html"],
        "inspect": ["inspect"],
        "export": ["export", Run(**FIELDS).hash, "model.safetensors"],
        "onnx": ["export", Run(**FIELDS).hash, "model.onnx"],
        "paper": ["paper", "show", "table4"],
        "flower": ["flower", "init", "app"],
        "certificates": ["flower", "certificates", "keys"],
        **{name: ["run", *SMALL, "--track", f"{name}:there"] for name in ("tensorboard", "mlflow", "wandb")},
    }
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(absent), json.dumps(list(commands.values()))],
        cwd=tmp_path_factory.mktemp("alone"),
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return {name: (code, said) for name, (code, said) in zip(commands, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("name", ["run", "compare", "diagnose", "report", "inspect", "export", "paper"])
def test_what_needs_no_extra_works(ends: dict[str, tuple[int, str]], name: str) -> None:
    assert ends[name][0] == 0, ends[name][1]


@pytest.mark.parametrize(
    ("name", "extra"),
    [(name, name) for name in ("tensorboard", "mlflow", "wandb", "onnx", "flower")] + [("certificates", "flower")],
)
def test_what_needs_an_extra_names_it(ends: dict[str, tuple[int, str]], name: str, extra: str) -> None:
    code, said = ends[name]
    assert code in (1, 2)
    assert said.count("\n") == 1
    assert f"pip install -c constraints.txt '.[{extra}]'" in said
