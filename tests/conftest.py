"""Tests run on one thread: small tensors gain nothing from more, and pinned numbers stay the same everywhere."""

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for other processes begins first, so that the rest is done meanwhile."""
    items.sort(key=lambda item: "test_deployment.py" not in item.nodeid)


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
