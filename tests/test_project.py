"""Files about the project agree with one another."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.conftest import LONGEST, TESTS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRIED = ("parquet", "tensorboard", "mlflow")
"""The extras that make test-lowest installs."""


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def pins(file: str) -> dict[str, Version]:
    lines = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / file).read_text(), re.MULTILINE)
    return {name.lower(): Version(version) for name, version in lines}


def lowest(requirement: Requirement) -> Version | None:
    """The lower bound of a requirement, if it has one."""
    bounds = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
    return bounds[0] if bounds else None


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for name in TRIED for text in extras[name])]
    ]
    bounds = {found.name: bound for found in declared if (bound := lowest(found))}
    tried = pins("constraints-lowest.txt")
    assert bounds == {name: tried.get(name) for name in bounds}


def test_tools_of_the_lowest_versions_are_the_usual_ones() -> None:
    usual, tried = pins("constraints.txt"), pins("constraints-lowest.txt")
    tools = ("hypothesis", "packaging", "pytest", "pytest-xdist")
    assert {name: tried[name] for name in tools} == {name: usual[name] for name in tools}


def test_the_pinned_versions_are_allowed() -> None:
    usual = pins("constraints.txt")
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for found in (Requirement(text) for group in groups for text in group):
        if found.name != PROJECT["name"]:
            assert usual[found.name] in found.specifier, found
