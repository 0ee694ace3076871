"""ImageNet-style trees: both layouts, the list of classes, and the real files where they are."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedskew.data.imagenet12 import CLASSES, imagenet12, read_classes
from fedskew.data.places import data_root

WNIDS = ["n00000002", "n00000001", "n00000003"]


def jpeg(path: Path, grey: int, mode: str = "RGB", size: tuple[int, int] = (80, 70)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).convert(mode).save(path, "JPEG", quality=95)


@pytest.fixture(autouse=True)
def _usual_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSKEW_CACHE", raising=False)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    path = tmp_path / "classes.txt"
    path.write_text("# ours\n\n" + "".join(f"{wnid}\ta name\n" for wnid in WNIDS[:1]) + "\n".join(WNIDS[1:]) + "\n")
    return str(path)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """As ImageNet has it, with a class nobody asks for."""
    root = tmp_path / "data"
    for k, wnid in enumerate([*WNIDS, "n09999999"]):
        for i in range(2):
            jpeg(root / f"imagenet12/train/{wnid}/{wnid}_{i}.JPEG", 40 * k + 10 * i, "RGB" if i else "L")
        jpeg(root / f"imagenet12/val/{wnid}/ILSVRC2012_val_{k}.JPEG", 40 * k, "CMYK")
    return root


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """As the archive of Tiny-ImageNet unpacks, with its unlabelled test images."""
    root = tmp_path / "data"
    place = root / "tiny-imagenet-200"
    lines = []
    for k, wnid in enumerate(WNIDS):
        for i in range(2):
            jpeg(place / f"train/{wnid}/images/{wnid}_{i}.JPEG", 40 * k + 10 * i, size=(64, 64))
        (place / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
        jpeg(place / f"val/images/val_{k}.JPEG", 40 * k, size=(64, 64))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    (place / "val/val_annotations.txt").write_text("".join(lines))
    jpeg(place / "test/images/test_0.JPEG", 0)
    return root


@pytest.mark.parametrize("layout", ["full", "tiny"])
def test_both_layouts(request: pytest.FixtureRequest, listed: str, layout: str) -> None:
    data = imagenet12(listed, data_dir=str(request.getfixturevalue(layout)))
    assert data.name == "imagenet12"
    assert data.class_names == ("a name", *WNIDS[1:])
    assert data.x_train.shape == (6, 3, 64, 64)
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.y_test.tolist() == [0, 1, 2]
    middle = torch.stack([data.x_train[:, c, 32, 32] for c in range(3)], 1).int()
    wanted = torch.tensor([40 * k + 10 * i for k in range(3) for i in range(2)])[:, None]
    assert (middle - wanted).abs().max() <= 3
    assert (data.x_test[:, 0, 32, 32].int() - torch.tensor([0, 40, 80])).abs().max() <= 6


def test_the_folder_itself_may_be_given(full: Path, listed: str) -> None:
    assert len(imagenet12(listed, data_dir=str(full / "imagenet12")).y_test) == 3


def test_size_is_an_option_with_a_cache_of_its_own(full: Path, listed: str) -> None:
    for size in (16, 64, 16):
        assert imagenet12(listed, size, str(full)).input_shape == (3, size, size)
    assert len(list((full / "imagenet12/.fedskew-cache").glob("*.npy"))) == 2


def test_progress_is_told(full: Path, listed: str) -> None:
    told: list[tuple[int, int]] = []
    imagenet12(listed, data_dir=str(full), progress=lambda done, total: told.append((done, total)))
    assert told == [(9, 9)]


def test_test_folder_where_there_is_no_val(full: Path, listed: str) -> None:
    (full / "imagenet12/val").rename(full / "imagenet12/test")
    assert len(imagenet12(listed, data_dir=str(full)).y_test) == 3
    shutil.rmtree(full / "imagenet12/test")
    with pytest.raises(FileNotFoundError, match="has neither val nor test"):
        imagenet12(listed, data_dir=str(full))


def test_missing_files_are_named(full: Path, tiny: Path, listed: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"empty: looked for the folder train in imagenet12, .*FEDSKEW_DATA"):
        imagenet12(listed, data_dir=str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*train/n02124075; .*classes=my_classes.txt"):
        imagenet12(data_dir=str(full))
    shutil.rmtree(full / "imagenet12")
    (tiny / "tiny-imagenet-200/val/val_annotations.txt").write_text("val_0.JPEG\tn00000002\t0\t0\t1\t1\n")
    with pytest.raises(ValueError, match=r"val_annotations.txt has no image of n00000001"):
        imagenet12(listed, data_dir=str(tiny))


def test_empty_class_folder_and_broken_image_are_named(full: Path, listed: str) -> None:
    broken = full / f"imagenet12/val/{WNIDS[1]}/ILSVRC2012_val_1.JPEG"
    os.truncate(broken, 100)
    with pytest.raises(ValueError, match=r"ILSVRC2012_val_1.JPEG is not a readable image"):
        imagenet12(listed, data_dir=str(full))
    broken.unlink()
    with pytest.raises(ValueError, match=r"the class folder .*val/n00000001 has no image"):
        imagenet12(listed, data_dir=str(full))


@pytest.mark.parametrize(
    ("text", "message"), [("", "lists 0 classes; allowed: 2 or more"), ("n1\nn2\nn1\n", "has n1 twice")]
)
def test_bad_lists(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_classes(str(tmp_path / "list.txt"))
    with pytest.raises(FileNotFoundError, match=r"no list of classes none.txt"):
        read_classes("none.txt")


def test_our_classes() -> None:
    assert len(CLASSES) == 12
    assert all(len(wnid) == 9 and wnid[0] == "n" and wnid[1:].isdigit() for wnid in CLASSES)


@pytest.mark.skipif(not (data_root() / "imagenet12/train").is_dir(), reason="FEDSKEW_DATA has no imagenet12")
def test_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path))
    first = imagenet12()
    monkeypatch.setattr("fedskew.data.images._decoded", None)  # from the cache, or not at all
    again = imagenet12()
    assert torch.bincount(first.y_train).tolist() == [500] * 12
    assert torch.bincount(first.y_test).tolist() == [50] * 12
    assert torch.equal(first.x_train, again.x_train)
    assert (first.mean, first.std) == (again.mean, again.std)
    one = next(iter(sorted((data_root() / "imagenet12/train/n02124075").rglob("*.JPEG"))))
    assert (first.x_train[0].numpy().transpose(1, 2, 0) == np.asarray(Image.open(one).convert("RGB"))).all()
