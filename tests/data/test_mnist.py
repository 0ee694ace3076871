"""MNIST and Fashion-MNIST: small files in the official layout, and the real ones where FEDSKEW_DATA has them."""

import gzip
import hashlib
import os
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedskew import Run, simulate
from fedskew.data import USUAL, load_dataset
from fedskew.data import fetch as fetching
from fedskew.data.fetch import listing, verify
from fedskew.data.mnist import FILES, fashion_mnist, mnist, mnist_files
from fedskew.data.sources import SOURCES

LOADERS = {"mnist": mnist, "fashion_mnist": fashion_mnist}
pytestmark = pytest.mark.filterwarnings("ignore:.*mnist. .* are not the official files")


def idx(values, kind=8):
    return bytes((0, 0, kind, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write(root, name="mnist", labels=((1, 0, 9), (7, 2)), packed=True, **replaced):
    """Four files as the official ones are; returns the images of training and test."""
    folder, images = root / name, []
    folder.mkdir(parents=True, exist_ok=True)
    for part, given in zip(("train", "t10k"), labels, strict=True):
        drawn = np.random.default_rng(len(given)).integers(0, 256, (len(given), 28, 28), dtype=np.uint8)
        images.append(drawn)
        for kind, values in (("images-idx3", drawn), ("labels-idx1", np.array(given, np.uint8))):
            content = replaced.get(f"{part}_{kind[:6]}", idx(values))
            path = folder / f"{part}-{kind}-ubyte"
            path = path.with_name(f"{path.name}.gz") if packed else path
            path.write_bytes(gzip.compress(content) if packed else content)
    return images


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", LOADERS)
def test_images_and_labels(tmp_path, name, packed):
    train, test = write(tmp_path, name, packed=packed)
    data = LOADERS[name](str(tmp_path))
    np.testing.assert_array_equal(data.x_train, train[:, None])
    np.testing.assert_array_equal(data.x_test, test[:, None])
    assert data.y_train.tolist() == [1, 0, 9]
    assert data.y_test.tolist() == [7, 2]
    assert (data.x_train.dtype, data.y_train.dtype) == (torch.uint8, torch.int64)
    assert data.x_train.is_contiguous()
    assert len(data.class_names) == 10
    assert len(mnist_files(name, str(tmp_path))) == 4


def test_each_has_a_folder_of_its_own(tmp_path):
    """Their files have the same names, so those beside the folders might be of either."""
    write(tmp_path, "", labels=((5,), (6,)))
    write(tmp_path, "mnist", labels=((1,), (2,)))
    with pytest.raises(FileNotFoundError, match=r"fashion_mnist: looked for train-images.*data fetch fashion_mnist"):
        fashion_mnist(str(tmp_path))
    write(tmp_path, "fashion_mnist", labels=((3,), (4,)))
    assert mnist(str(tmp_path)).y_train.tolist() == [1]
    assert fashion_mnist(str(tmp_path)).y_train.tolist() == [3]


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(tmp_path, file):
    write(tmp_path)
    (tmp_path / "mnist" / f"{file}.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"looked for {file}\.gz or {file} there; run `fedskew data fetch mnist`"
    ):
        mnist(str(tmp_path))


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"train_labels": idx(np.array([1, 2], np.uint8))}, "has 3 images, .* has 2 labels"),
        ({"train_labels": idx(np.array([1, 2, 10], np.uint8))}, r"has label 10; allowed: 0\.\.9"),
        ({"train_images": idx(np.zeros((3, 32, 32), np.uint8))}, "images are 32x32; allowed: 28x28"),
        (
            {"train_images": idx(np.zeros((3, 28, 28), np.uint8), kind=13)},
            "begins with 00000d03, a file of images with 00000803",
        ),
        ({"train_images": idx(np.zeros((3, 28), np.uint8))}, "begins with 00000802, a file of images with 00000803"),
        ({"train_images": idx(np.zeros(3, np.uint8))}, "holds labels, not images; the two files may be swapped"),
        (
            {"t10k_labels": idx(np.zeros((2, 28, 28), np.uint8))},
            "holds images, not labels; the two files may be swapped",
        ),
        ({"t10k_labels": b"<html>404</html>"}, "begins with 3c68746d, a file of labels with 00000801"),
        ({"train_images": idx(np.zeros((3, 28, 28), np.uint8))[:-1]}, "it says 3 x 28 x 28 and holds 2,351 bytes"),
        ({"t10k_labels": idx(np.array([1, 2], np.uint8)) + b"1"}, "it says 2 and holds 3 bytes"),
        ({"t10k_labels": b"\0\0\x08\x01"}, "it ends in its header"),
        ({"t10k_labels": b""}, "it begins with nothing"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_wrong_content(tmp_path, replaced, said, packed):
    write(tmp_path, packed=packed, **replaced)
    with pytest.raises(ValueError, match=said):
        mnist(str(tmp_path))


@pytest.mark.parametrize("keep", [0, 5, 100, -4])
def test_a_truncated_archive(tmp_path, keep):
    write(tmp_path)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"ubyte\.gz is truncated, damaged or not an IDX file.*data fetch mnist"):
        mnist(str(tmp_path))


@pytest.mark.filterwarnings("error")
def test_files_of_another_length_are_used_with_a_notice(tmp_path):
    write(tmp_path)
    with pytest.warns(UserWarning, match=r"mnist: train-images.*t10k-labels.* are not the official files"):
        mnist(str(tmp_path))


def test_list_and_verify_look_into_the_folders(tmp_path, monkeypatch):
    write(tmp_path, "mnist")
    write(tmp_path, "fashion_mnist", packed=False)
    official = [hashlib.sha256((tmp_path / "mnist" / s.file).read_bytes()).hexdigest() for s in SOURCES["mnist"]]
    known = tuple(replace(s, sha256=sha) for s, sha in zip(SOURCES["mnist"], [*official[:3], "0" * 64], strict=True))
    monkeypatch.setattr(fetching, "SOURCES", {"mnist": known, "fashion_mnist": SOURCES["fashion_mnist"]})
    states = [(status.name, status.state) for status in verify(str(tmp_path))]
    assert states == [("mnist", "good")] * 3 + [("mnist", "other checksum")] + [("fashion_mnist", "not checked")] * 4
    listed = [status for status in listing(str(tmp_path)) if status.name in LOADERS]
    assert {status.state for status in listed} == {"present"}
    assert {status.path.parent.name for status in listed} == set(LOADERS)


def test_a_run_with_the_usual_settings(tmp_path):
    digits = tuple(range(10)) * 4
    write(tmp_path, labels=(digits, digits))
    run = Run(dataset="mnist", clients=2, rounds=1, partition="iid", data_dir=str(tmp_path))
    assert run.model.startswith("mcmahan")
    (record,) = simulate(run)
    assert record.accuracy is not None
    assert (USUAL["mnist"].mirrors, USUAL["fashion_mnist"].mirrors) == (False, True)


@pytest.mark.parametrize("name", LOADERS)
def test_real_counts_and_statistics(name):
    try:
        mnist_files(name, os.environ.get("FEDSKEW_DATA", "absent"))
    except FileNotFoundError:
        pytest.skip(f"{name} is not in FEDSKEW_DATA")
    data = load_dataset(name, 0, 1, os.environ["FEDSKEW_DATA"])
    assert (len(data.x_train), len(data.x_test)) == (60_000, 10_000)
    pixels = data.x_train.double()
    assert float(pixels.mean()) == pytest.approx(data.mean[0], abs=1e-4)
    assert float(pixels.std(correction=0)) == pytest.approx(data.std[0], abs=1e-4)
