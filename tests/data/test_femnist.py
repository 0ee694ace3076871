"""FEMNIST in its three forms, on small files in the layouts of LEAF and of Hugging Face."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedskew.core import rng
from fedskew.core.dataset import Dataset
from fedskew.data.femnist import CHARACTERS, LEAST, femnist

SIZES = {"f0003_12": 25, "f0000_14": 30, "f0001_41": 10, "f0002_07": 9, "f0010_00": 20}
ABLE = ["f0000_14", "f0001_41", "f0003_12", "f0010_00"]


def example(writer: str, i: int) -> tuple[np.ndarray, int]:
    """Image 28x28 and label of a writer's i-th character: white paper, one pixel that tells which it is."""
    image = np.full((28, 28), 255, np.uint8)
    image[0, 0], image[27, 27] = i, int(writer[1:5] or 0)
    return image, (i * 7) % 62


def leaf(path: Path, members: dict[str, list[int]]) -> None:
    """As LEAF's data_to_json writes: 784 numbers in [0, 1] an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {}
    for writer, which in members.items():
        pairs = [example(writer, i) for i in which]
        data[writer] = {"x": [(image.ravel() / 255).tolist() for image, _ in pairs], "y": [label for _, label in pairs]}
    content = {"users": list(members), "num_samples": [len(m) for m in members.values()], "user_data": data}
    path.write_text(json.dumps(content))


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def parquet(path: Path, members: dict[str, list[int]], characters: bool = False) -> None:
    """As `datasets` writes: images are structs of bytes and path, classes are numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(writer, *example(writer, i)) for writer, which in members.items() for i in which]
    table = pa.table(
        {
            "image": pa.array([{"bytes": png(image), "path": None} for _, image, _ in rows]),
            "writer_id": [writer for writer, _, _ in rows],
            "hsf_id": [0] * len(rows),
            "character": [CHARACTERS[label] if characters else label for _, _, label in rows],
        }
    )
    pq.write_table(table, path, row_group_size=16)


def make(root: Path, form: str) -> str:
    every = {writer: list(range(size)) for writer, size in SIZES.items()}
    one, two = ({w: i for w, i in every.items() if (w < "f0002") == early} for early in (True, False))
    if form == "leaf":
        for name, part in (("0", one), ("1", two)):
            train = {w: [i for i in which if i % 10 != 9] for w, which in part.items()}
            test = {w: [i for i in which if i % 10 == 9] for w, which in part.items()}
            leaf(root / f"femnist/train/all_data_{name}_niid_0_keep_0_train_9.json", train)
            leaf(root / f"femnist/test/all_data_{name}_niid_0_keep_0_test_9.json", test)
    elif form == "all_data":
        leaf(root / "femnist/all_data/all_data_0.json", one)
        leaf(root / "femnist/all_data/all_data_1.json", two)
    else:
        parquet(root / "femnist/data/train-00000-of-00002.parquet", one)
        parquet(root / "femnist/data/train-00001-of-00002.parquet", two, characters=form == "characters")
    return str(root)


def owners(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    assert data.client_train is not None
    assert data.client_test is not None
    return data.client_train, data.client_test


@pytest.mark.parametrize("form", ["leaf", "all_data", "parquet", "characters"])
def test_every_form_gives_the_same(tmp_path: Path, form: str) -> None:
    if form == "characters":
        every = {writer: list(range(size)) for writer, size in SIZES.items()}
        parquet(tmp_path / "femnist/all.parquet", every, characters=True)
        path = str(tmp_path)
    else:
        path = make(tmp_path, form)
    data = femnist(seed=1, clients=4, data_dir=path)
    client_train, client_test = owners(data)
    assert data.num_classes == 62
    assert data.class_names == tuple(CHARACTERS)
    assert data.x_train.dtype == torch.uint8
    assert data.input_shape == (1, 28, 28)
    for number, writer in enumerate(ABLE):
        places = [i for i in range(SIZES[writer]) if i % 10 != 9]
        mine = client_train == number
        assert data.x_train[mine, 0, 0, 0].tolist() == places
        assert set(data.x_train[mine, 0, 27, 27].tolist()) == {int(writer[1:5])}
        assert data.y_train[mine].tolist() == [example(writer, i)[1] for i in places]
        assert data.x_test[client_test == number, 0, 0, 0].tolist() == list(range(9, SIZES[writer], 10))
    x = data.x_train.double()
    assert data.mean == pytest.approx((x.mean().item(),))
    assert data.std == pytest.approx((x.std(unbiased=False).item(),))


def test_the_rule_of_choice(tmp_path: Path) -> None:
    """Sorted ids with ten examples or more, a draw without replacement from the seed's stream, sorted again."""
    path = make(tmp_path, "all_data")
    seen = set()
    for seed in range(12):
        data = femnist(seed, clients=2, data_dir=path)
        drawn = sorted(rng.stream(seed, "writers").choice(len(ABLE), 2, replace=False).tolist())
        seen.add(tuple(drawn))
        client_train, client_test = owners(data)
        assert client_train.unique().tolist() == client_test.unique().tolist() == [0, 1]
        ids = [data.x_train[client_train == k][0, 0, 27, 27].item() for k in (0, 1)]
        assert ids == [int(ABLE[k][1:5]) for k in drawn]
    assert len(seen) > 3


def test_the_order_of_keys_in_a_file_does_not_matter(tmp_path: Path) -> None:
    path = make(tmp_path, "all_data")
    wanted = femnist(0, 4, path)
    for file in (tmp_path / "femnist/all_data").iterdir():
        content = json.loads(file.read_text())
        data = {writer: content["user_data"][writer] for writer in reversed(content["users"])}
        turned = {"user_data": data, "num_samples": content["num_samples"], "users": content["users"]}
        file.write_text(json.dumps(turned, separators=(",", ":")))
    data = femnist(0, 4, path)
    assert torch.equal(data.x_train, wanted.x_train)
    assert torch.equal(data.y_test, wanted.y_test)


def test_too_few_writers(tmp_path: Path) -> None:
    assert LEAST == 10
    path = make(tmp_path, "all_data")
    for clients in (0, 5):
        with pytest.raises(
            ValueError, match=rf"clients is {clients}; allowed: 1 to 4, the number of writers with at least 10"
        ):
            femnist(0, clients, path)


def test_writers_without_a_test_part_do_not_take_part(tmp_path: Path) -> None:
    leaf(tmp_path / "train/a.json", {"w1": list(range(12)), "w2": list(range(12)), "w3": list(range(12))})
    leaf(tmp_path / "test/a.json", {"w1": [0], "w2": [], "w4": list(range(12))})
    assert owners(femnist(0, 1, str(tmp_path)))[0].tolist() == [0] * 12
    with pytest.raises(ValueError, match=r"allowed: 1 to 1, .*preprocess.sh -t sample"):
        femnist(0, 2, str(tmp_path))


def test_missing(tmp_path: Path) -> None:
    (tmp_path / "femnist/train").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"femnist is not in .*looked for train/\*.json .*FEDSKEW_DATA"):
        femnist(0, 2, str(tmp_path))


def change(content: dict[str, Any], what: str) -> None:
    one = content["user_data"]["w"]
    if what == "label":
        one["y"][3] = 62
    elif what == "kind":
        one["y"][3] = 0.5
    elif what == "pixels":
        one["x"][3] = one["x"][3][:-1]
    elif what == "range":
        one["x"][3][5] = 255.0
    elif what == "length":
        one["y"].pop()
    elif what == "count":
        content["num_samples"] = []
    else:
        del content["user_data"]["w"]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("label", "labels outside 0..61"),
        ("kind", "labels outside 0..61"),
        ("pixels", "x and y are not numbers of the same length"),
        ("range", "pixels outside 0..1"),
        ("length", r"y \[11\] for 12 images"),
        ("count", "it has 1 users with 0 num_samples"),
        ("user", "it has no .w."),
    ],
)
def test_bad_json_is_named(tmp_path: Path, what: str, message: str) -> None:
    file = tmp_path / "all_data/bad.json"
    leaf(file, {"w": list(range(12))})
    content = json.loads(file.read_text())
    change(content, what)
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"bad.json is not a complete LEAF file of FEMNIST: .*{message}"):
        femnist(0, 1, str(tmp_path))


def test_truncated_files_are_named(tmp_path: Path) -> None:
    leaf(tmp_path / "all_data/bad.json", {"w": list(range(12))})
    (tmp_path / "all_data/bad.json").write_text((tmp_path / "all_data/bad.json").read_text()[:-40])
    with pytest.raises(ValueError, match=r"bad.json is not a complete LEAF file"):
        femnist(0, 1, str(tmp_path))
    parquet(tmp_path / "other/femnist/bad.parquet", {"w0001": list(range(12))})
    bad = tmp_path / "other/femnist/bad.parquet"
    bad.write_bytes(bad.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"bad.parquet is not a complete parquet file"):
        femnist(0, 1, str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("character", 62, r"has character 62; allowed: 0..61"),
        ("character", "ab", r"has character 'ab'"),
        ("image", {"bytes": b"no png", "path": None}, r"has an unreadable image"),
        ("image", {"bytes": None, "path": "a.png"}, r"has an unreadable image"),
        ("image", {"bytes": png(np.zeros((28, 27), np.uint8)), "path": None}, r"has an image of 27x28; allowed: 28x28"),
        ("character", None, r"has no column character; needed: image, writer_id, character"),
    ],
)
def test_bad_parquet_is_named(tmp_path: Path, column: str, value: Any, message: str) -> None:
    file = tmp_path / "bad.parquet"
    parquet(file, {"w0001": list(range(12))})
    table = pq.read_table(file)
    place = table.column_names.index(column)
    table = table.remove_column(place)
    if value is not None:
        table = table.append_column(column, pa.array([value] * 12))
    pq.write_table(table, file)
    with pytest.raises(ValueError, match=rf"bad.parquet {message}"):
        femnist(0, 1, str(tmp_path))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        femnist(0, 1, path)
