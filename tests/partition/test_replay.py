"""Partitions from files: our own export, and index files of other tools."""

import json

import numpy as np
import pytest
import torch

from fedskew import Run
from fedskew.partition import export, replay
from fedskew.simulation.plan import build_federation

LABELS = torch.tensor([0, 1, 0, 1, 2])
WANTED = [[0, 3], [1, 2, 4]]


def split(path, clients=2):
    return [part.tolist() for part in replay(str(path))(LABELS, clients, np.random.default_rng(0))]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(WANTED),
        json.dumps({"0": WANTED[0], "1": WANTED[1]}),
        json.dumps({"10": WANTED[1], "9": WANTED[0]}),
        json.dumps({"beta": WANTED[1], "alpha": WANTED[0]}),
        "0\n1\n1\n0\n1\n",
    ],
)
def test_index_files_of_other_tools(tmp_path, text):
    (tmp_path / "split").write_text(text)
    assert split(tmp_path / "split") == WANTED


def test_our_own_export(tmp_path):
    export(tmp_path / "split.json", "x", [torch.tensor(part) for part in WANTED])
    assert split(tmp_path / "split.json") == WANTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[0, 3], [1, 2, 5]]", r"client 1 has indices 1..5; allowed: 0..4"),
        ("[[0, 3], [3]]", "lists sample 3 twice"),
        ("[[0], []]", "client 1 has no sample"),
        ('[[0], ["a"]]', "not a list of sample indices"),
        ("0\n1\n", "2 lines for 5 samples"),
        ("0\n1\n0\nx\n0", "'x' is not a client number"),
        ("0\n9\n0\n0\n0", "numbered from 0"),
        ("3", "1 lines for 5 samples"),
        ("0\n1\n0\n0\n" + "9" * 30, "'99999999999999999999' is not a client number"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"' + "9" * 5000 + '": [0], "1": 3}', "is not a partition"),
        ('{"format": 9}', "its format is 9"),
        ("[[0, 1, 2, 3, 4]]", "1 clients; the run has 2"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    (tmp_path / "split").write_text(text)
    with pytest.raises(ValueError, match=message):
        split(tmp_path / "split")


def test_a_run_replays_a_partition_and_its_hash_covers_the_content(tmp_path):
    file = tmp_path / "split.json"
    first = build_federation(Run(partition="dirichlet:0.3", clients=5))
    export(file, "dirichlet:0.3", first.indices)
    run = Run(partition=f"replay:{file}", clients=5, seed=9)
    assert all(torch.equal(a, b) for a, b in zip(build_federation(run).indices, first.indices, strict=True))
    before = run.hash
    export(file, "dirichlet:0.3", build_federation(Run(partition="iid", clients=5)).indices)
    assert run.hash != before
    file.unlink()
    with pytest.raises(ValueError, match="there is no file"):
        build_federation(run)
