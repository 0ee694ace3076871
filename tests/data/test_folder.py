"""Images in class folders: what a file becomes, what is kept, and what is refused."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedskew.data.folder import fingerprint, folder
from fedskew.data.images import channel_statistics


def picture(path: Path, colour: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


@pytest.fixture(autouse=True)
def _usual_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSKEW_CACHE", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for k, name in enumerate(("ant", "bee", "cat")):
        for i in range(3):
            picture(tmp_path / "train" / name / f"{i}.png", (k, i, 100))
        picture(tmp_path / "test" / name / "0.png", (k, 50, 100))
    return tmp_path


def decoded_once(path: Path, size: int | None = None) -> tuple[torch.Tensor, list[int]]:
    calls: list[int] = []
    return folder(str(path), size, lambda done, total: calls.append(done)).x_train, calls


def test_classes_by_name_and_pixels(tree: Path) -> None:
    data = folder(str(tree))
    assert data.class_names == ("ant", "bee", "cat")
    assert data.x_train.shape == (9, 3, 8, 8)
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.y_test.tolist() == [0, 1, 2]
    assert data.x_train[:, :, 0, 0].tolist() == [[k, i, 100] for k in range(3) for i in range(3)]
    assert data.mean == (1.0, 1.0, 100.0)
    assert data.std == pytest.approx((np.sqrt(2 / 3), np.sqrt(2 / 3), 1.0))


def test_second_load_is_from_the_cache(tree: Path) -> None:
    first, calls = decoded_once(tree)
    assert calls == [12]
    again, calls = decoded_once(tree)
    assert calls == []
    assert torch.equal(first, again)
    again.add_(1)  # copy on write: the file stays as it is
    assert torch.equal(decoded_once(tree)[0], first)


def test_a_changed_tree_is_decoded_again_and_the_old_images_go(tree: Path) -> None:
    decoded_once(tree)
    picture(tree / "train/ant/0.png", (200, 0, 0))
    x, calls = decoded_once(tree)
    assert calls == [12]
    assert x[0, :, 0, 0].tolist() == [200, 0, 0]
    picture(tree / "train/bee/new.png")
    assert len(decoded_once(tree)[0]) == 10
    (tree / "test/cat/0.png").rename(tree / "test/cat/1.png")
    assert decoded_once(tree)[1] == [13]
    assert len(list((tree / ".fedskew-cache").iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "no images", "not json", "no keys"])
def test_a_damaged_cache_is_made_anew(tree: Path, damage: str) -> None:
    first = decoded_once(tree)[0].clone()
    images, index = (next((tree / ".fedskew-cache").glob(f"*.{kind}")) for kind in ("npy", "json"))
    if damage == "truncated":
        os.truncate(images, 200)
    elif damage == "no images":
        images.unlink()
    else:
        index.write_text("{" if damage == "not json" else json.dumps({}))
    again, calls = decoded_once(tree)
    assert calls == [12]
    assert torch.equal(first, again)


def test_cache_elsewhere(tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDSKEW_CACHE", str(place))
    decoded_once(tree)
    assert decoded_once(tree)[1] == []
    assert not (tree / ".fedskew-cache").exists()
    assert len(list(place.glob("*/*.npy"))) == 1


def test_without_a_place_to_write_images_stay_in_memory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "file").write_text("")
    monkeypatch.setenv("FEDSKEW_CACHE", str(tree / "file"))
    with pytest.warns(UserWarning, match=r"are not cached, .*file.* cannot be written") as caught:
        data = folder(str(tree))
    assert caught[0].filename == __file__
    assert data.x_train.shape == (9, 3, 8, 8)


def test_a_full_disk_leaves_nothing_behind(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        folder(str(tree))
    assert list((tree / ".fedskew-cache").iterdir()) == []


def test_loads_at_the_same_time_agree(tree: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: folder(str(tree)).x_train, range(8)))
    assert all(torch.equal(loaded[0], x) for x in loaded)


def test_every_kind_of_file_becomes_rgb(tmp_path: Path) -> None:
    place = tmp_path / "train/a"
    place.mkdir(parents=True)
    wide = np.full((4, 4), 0x8000, np.uint16)
    Image.new("L", (4, 4), 7).save(place / "0_grey.png")
    Image.new("LA", (4, 4), (7, 255)).save(place / "1_grey_alpha.png")
    Image.new("1", (4, 4), 1).save(place / "2_bits.png")
    Image.new("RGBA", (4, 4), (9, 9, 9, 0)).save(place / "3_clear.png")
    Image.new("CMYK", (4, 4), (0, 0, 0, 255)).save(place / "4_cmyk.jpeg")
    palette = Image.new("RGB", (4, 4), (1, 2, 3)).quantize()
    palette.save(place / "5_palette.gif")
    palette.save(place / "6_clear_palette.png", transparency=b"\x00")
    Image.fromarray(wide).save(place / "7_wide.png")
    Image.new("RGB", (4, 4), (1, 2, 3)).save(place / "8_colour.BMP")
    picture(tmp_path / "train/b/0.png", size=(4, 4))
    picture(tmp_path / "val/b/0.png", size=(4, 4))
    (place / "notes.txt").write_text("not an image")
    (place / ".hidden.png").write_text("not an image")
    x = folder(str(tmp_path)).x_train[:9, :, 2, 2]
    assert x[0].tolist() == [7, 7, 7]
    assert x[1].tolist() == [7, 7, 7]
    assert x[2].tolist() == [255, 255, 255]
    assert x[3].tolist() == [255, 255, 255]
    assert (x[4].int() < 8).all()
    assert x[5].tolist() == [1, 2, 3]
    assert x[6].tolist() == [255, 255, 255]
    assert x[7].tolist() == [128, 128, 128]
    assert x[8].tolist() == [1, 2, 3]


def test_the_shorter_side_is_resized_and_the_centre_kept(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).integers(0, 256, (10, 30, 3), np.uint8)
    wide, high = Image.fromarray(noise), Image.fromarray(noise.transpose(1, 0, 2))
    for name in ("train/a", "train/b", "test/a"):
        (tmp_path / name).mkdir(parents=True)
        wide.save(tmp_path / name / "1.png")
        high.save(tmp_path / name / "0.png")
    x = folder(str(tmp_path), size=5).x_train.numpy()
    bilinear = Image.Resampling.BILINEAR
    assert (x[1].transpose(1, 2, 0) == np.asarray(wide.resize((15, 5), bilinear).crop((5, 0, 10, 5)))).all()
    assert (x[0].transpose(1, 2, 0) == np.asarray(high.resize((5, 15), bilinear).crop((0, 5, 5, 10)))).all()


def test_one_size_need_not_be_square(tmp_path: Path) -> None:
    for name in ("train/a", "train/b", "test/a"):
        picture(tmp_path / name / "0.png", size=(6, 4))
    assert folder(str(tmp_path)).input_shape == (3, 4, 6)


def test_different_sizes_need_one(tree: Path) -> None:
    picture(tree / "train/bee/1.png", size=(9, 7))
    with pytest.raises(ValueError, match=r"different sizes \(.*bee/1.png 9x7, .*ant/0.png 8x8\); give one"):
        folder(str(tree))
    assert folder(str(tree), size=8).input_shape == (3, 8, 8)


@pytest.mark.parametrize("content", [b"", b"GIF89a nonsense", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_an_unreadable_image_is_named(tree: Path, content: bytes) -> None:
    (tree / "train/bee/1.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"bee/1.png is not a readable image"):
        folder(str(tree), size=8)
    assert not list((tree / ".fedskew-cache").iterdir())


def test_a_truncated_image_is_named(tree: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tree / "test/ant/0.jpg")
    os.truncate(tree / "test/ant/0.jpg", 2000)
    with pytest.raises(ValueError, match=r"test/ant/0.jpg is not a readable image: .*truncated"):
        folder(str(tree), size=8)


def test_bad_trees(tree: Path) -> None:
    (tree / "train/dog").mkdir()
    with pytest.raises(ValueError, match=r"train/dog has no image"):
        folder(str(tree))
    (tree / "train/dog").rmdir()
    picture(tree / "test/eel/0.png")
    with pytest.raises(ValueError, match=r"test/eel is a class without training images"):
        folder(str(tree))
    with pytest.raises(ValueError, match=r"class without training images"):
        fingerprint(str(tree))
    (tree / "test").rename(tree / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"has no folder test or val; images belong in"):
        folder(str(tree))
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; images belong in"):
        folder(str(tree / "nowhere"))
    (tree / "test").mkdir()
    with pytest.raises(ValueError, match=r"no class folder with test images"):
        folder(str(tree))


def test_size_of_nothing(tree: Path) -> None:
    for size in (0, 10**12):
        with pytest.raises(ValueError, match=rf"size is {size}; allowed: 1 to 10,000"):
            folder(str(tree), size=size)


def test_one_class_is_none(tmp_path: Path) -> None:
    picture(tmp_path / "train/a/0.png")
    picture(tmp_path / "test/a/0.png")
    with pytest.raises(ValueError, match=r"has 1 class folder\(s\); allowed: 2 or more"):
        folder(str(tmp_path))


def test_fingerprint_is_of_names_and_contents(tree: Path) -> None:
    before = fingerprint(str(tree))
    os.utime(tree / "train/ant/0.png", (1, 1))
    folder(str(tree))
    assert fingerprint(str(tree)) == before
    picture(tree / "train/ant/0.png", (99, 0, 0))
    changed = fingerprint(str(tree))
    assert changed != before
    (tree / "train/ant/0.png").rename(tree / "train/ant/9.png")
    assert fingerprint(str(tree)) not in (before, changed)


def test_channel_statistics_agree_with_numpy() -> None:
    x = np.random.default_rng(1).integers(0, 256, (1500, 3, 5, 4), np.uint8)
    x[:, 2] = 255
    mean, std = channel_statistics(x)
    assert mean == pytest.approx(x.mean((0, 2, 3)))
    assert std == pytest.approx([*x[:, :2].std((0, 2, 3)), 1.0])
