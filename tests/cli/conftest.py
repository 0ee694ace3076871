"""Commands write to the current folder, and read where runs and data are from the environment."""

import pytest


@pytest.fixture
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("FEDSKEW_RUNS", "FEDSKEW_DATA"):
        monkeypatch.delenv(name, raising=False)
