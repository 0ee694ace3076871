"""Tests run on one thread, and so do the processes that they start: small tensors gain nothing from more, two workers
with two threads each take turns at waiting, and pinned numbers stay the same everywhere."""

import os
from collections.abc import Iterator

import pytest
import torch

LONGEST = (
    "flower/test_deployment.py",
    "flower/test_parity.py",
    "engine/test_distributed.py",
    "parity/test_engines.py",
    "test_cli_paper.py",
    "test_cli_diagnose.py",
    "test_cli.py",
)


def pytest_configure() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin first, so that all workers end at about the same time."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: next((places[name] for name in LONGEST if name in item.nodeid), len(LONGEST)))


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
