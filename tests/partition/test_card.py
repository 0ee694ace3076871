"""The numbers of a card by hand, and a partition's way through a file."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.partition import card, dirichlet, export, partition_hash, read_split, skew_indices

INDICES = [torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5])]
TABLE = [[2, 0, 0, 0], [1, 2, 1, 0]]


def test_skew_by_hand() -> None:
    """p = (1/2, 1/3, 1/6, 0); client 0 has (1, 0, 0, 0), client 1 has (1/4, 1/2, 1/4, 0)."""
    skew = skew_indices(np.array(TABLE))
    assert skew["mean_total_variation"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert skew["effective_classes"] == pytest.approx((1 + math.exp(1.5 * math.log(2))) / 2)
    assert skew["missing_share"] == pytest.approx(2 / 6)  # the fourth class exists nowhere
    assert skew["size_gini"] == pytest.approx(2 * 2 / (2 * 2 * 6))
    assert all(type(value) is float for value in skew.values())


def test_skew_of_equal_clients_is_none() -> None:
    skew = skew_indices(np.full((7, 5), 3))
    assert skew["mean_total_variation"] == pytest.approx(0.0, abs=1e-15)
    assert skew["effective_classes"] == pytest.approx(5.0)
    assert skew["missing_share"] == 0.0
    assert skew["size_gini"] == 0.0


def test_skew_of_one_class_each_is_largest() -> None:
    skew = skew_indices(np.eye(4, dtype=np.int64) * 6)
    assert skew == pytest.approx(
        {"mean_total_variation": 0.75, "effective_classes": 1.0, "missing_share": 0.75, "size_gini": 0.0}
    )


def test_gini_agrees_with_its_definition() -> None:
    sizes = np.array([[5], [1], [9], [2], [2]])
    expected = np.abs(sizes - sizes.T).sum() / (2 * 5 * sizes.sum())
    assert skew_indices(sizes)["size_gini"] == pytest.approx(expected)


def test_hash_is_over_clients_sizes_and_indices() -> None:
    raw = struct.pack("<9q", 2, 2, 4, 0, 1, 2, 3, 4, 5)
    assert partition_hash(INDICES) == hashlib.sha256(raw).hexdigest()
    assert partition_hash([part.int() for part in INDICES]) == partition_hash(INDICES)
    assert partition_hash(INDICES[::-1]) != partition_hash(INDICES)
    assert partition_hash([torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])]) != partition_hash(INDICES)


def test_card_by_hand() -> None:
    found = card("labels:k=2", INDICES, np.array(TABLE))
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "partition": "labels:k=2",
        "hash": partition_hash(INDICES),
        "clients": 2,
        "classes": 4,
        "samples": 6,
        "sizes": [2, 4],
        "counts": TABLE,
        "missing": [[1, 2, 3], [3]],
        "skew": skew_indices(np.array(TABLE)),
    }


def test_a_client_without_a_sample_has_no_skew() -> None:
    with pytest.raises(ValueError, match="client 2 has no sample"):
        skew_indices(np.array([*TABLE, [0, 0, 0, 0]]))


def test_export_and_read_split(tmp_path: Path) -> None:
    labels = torch.arange(5000) % 10
    indices = dirichlet(0.3)(labels, 10, np.random.default_rng(0))
    path = tmp_path / "new" / "partition.json"
    export(path, "old", INDICES)
    export(path, "dirichlet:b=0.3,balance=on,min_size=10", indices)
    name, replayed = read_split(path, 5000)
    assert name == "dirichlet:b=0.3,balance=on,min_size=10"
    assert all(map(torch.equal, replayed, indices))
    assert all(part.dtype == torch.int64 for part in replayed)
    assert partition_hash(replayed) == partition_hash(indices)
    assert [file.name for file in path.parent.iterdir()] == ["partition.json"]


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "partition.json"
    export(path, "good", INDICES)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        export(path, "bad", INDICES[:1])
    assert read_split(path, 6)[0] == "good"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "not a partition of format 1; its format is 2"),
        ({"name": None}, "lacks a name"),
        ({"clients": []}, "list of clients"),
        ({"clients": [[0, 1], []]}, "client 1 has no sample"),
        ({"clients": [[0, 1], [2, 6]]}, r"client 1 has indices 2\.\.6; allowed: 0\.\.5"),
        ({"clients": [[-1, 1], [2]]}, r"client 0 has indices -1\.\.1"),
        ({"clients": [[0, 1], [1, 2]]}, "lists sample 1 twice"),
        ({"clients": [[0, 0], [1, 2]]}, "lists sample 0 twice"),
        ({"clients": [[0, 1.5]]}, "client 0 is not a list of sample indices"),
        ({"clients": [[0, True]]}, "client 0 is not a list of sample indices"),
        ({"clients": [[0, 1], 5]}, "client 1 is not a list of sample indices"),
        ({"clients": [[0, 1], [2, 3, 4]]}, "was changed"),
        ({"hash": "0" * 64}, "was changed"),
    ],
)
def test_replay_refuses_what_was_changed(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "partition.json"
    export(path, "x", INDICES)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        read_split(path, 6)


def test_replay_refuses_what_is_no_partition(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*missing\.json"):
        read_split(tmp_path / "missing.json", 6)
    for text, message in [("{", "is not JSON"), ("[1]", "is not a partition"), ("{}", "is not a partition")]:
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_split(tmp_path / "bad.json", 6)
