"""Tests run on one thread, and so do the processes that they start: small tensors gain nothing from more, two workers
with two threads each take turns at waiting, and pinned numbers stay the same everywhere."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent
LONGEST = (
    "flower/test_deployment.py",
    "flower/test_parity.py",
    "engine/test_distributed.py",
    "parity/test_engines.py",
    "cli/test_paper.py",
    "cli/test_diagnose.py",
    "cli/test_cli.py",
)


def pytest_configure() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it: what tests read must not depend on a terminal's width


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin first, so that all workers end at about the same time."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def generator() -> torch.Generator:
    """Random numbers of a test's own."""
    return torch.Generator().manual_seed(20260)
