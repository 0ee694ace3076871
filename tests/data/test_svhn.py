"""SVHN: small files in the official layout, and the real ones where FEDSKEW_DATA has them."""

import os

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fedskew.data.places import find
from fedskew.data.svhn import svhn

pytestmark = pytest.mark.filterwarnings("ignore:svhn. .* are not the official files")


@pytest.fixture
def real():
    if "FEDSKEW_DATA" not in os.environ:
        pytest.skip("FEDSKEW_DATA is not set")
    try:
        return [find("svhn", [f"{part}_32x32.mat"]) for part in ("train", "test")]
    except FileNotFoundError:
        pytest.skip("SVHN is not in FEDSKEW_DATA")


def write(folder, part, labels, compressed=True, **replaced):
    """A file as the official ones are; returns its images as [n, row, column, channel]."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    content = {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None], **replaced}
    savemat(
        folder / f"{part}_32x32.mat", {k: v for k, v in content.items() if v is not None}, do_compression=compressed
    )
    return images


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("below", ["", "svhn"])
def test_images_and_digits(tmp_path, compressed, below):
    train = write(tmp_path / below, "train", [1, 10, 3, 10], compressed)
    test = write(tmp_path / below, "test", [9, 10], compressed)
    data = svhn(data_dir=str(tmp_path))
    np.testing.assert_array_equal(data.x_train, train.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.x_test, test.transpose(0, 3, 1, 2))
    assert data.y_train.tolist() == [1, 0, 3, 0]
    assert data.y_test.tolist() == [9, 0]
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == torch.int64
    assert data.x_train.is_contiguous()
    assert data.class_names == tuple("0123456789")


def test_extra_follows_train(tmp_path):
    train, extra = write(tmp_path, "train", [1, 2]), write(tmp_path, "extra", [3, 10, 5])
    write(tmp_path, "test", [9])
    data = svhn(extra=True, data_dir=str(tmp_path))
    np.testing.assert_array_equal(data.x_train, np.concatenate([train, extra]).transpose(0, 3, 1, 2))
    assert data.y_train.tolist() == [1, 2, 3, 0, 5]
    assert len(svhn(data_dir=str(tmp_path)).x_train) == 2


@pytest.mark.parametrize("part", ["train", "test"])
def test_missing_file(tmp_path, part):
    write(tmp_path, "test" if part == "train" else "train", [1])
    with pytest.raises(FileNotFoundError, match=rf"{part}_32x32\.mat.*fedskew data fetch svhn"):
        svhn(data_dir=str(tmp_path))


def test_missing_extra(tmp_path):
    write(tmp_path, "train", [1])
    write(tmp_path, "test", [1])
    with pytest.raises(FileNotFoundError, match=r"extra_32x32\.mat.*fedskew data fetch svhn-extra"):
        svhn(extra=True, data_dir=str(tmp_path))


@pytest.mark.parametrize("label", [0, 11])
def test_label_out_of_range(tmp_path, label):
    write(tmp_path, "train", [1, label])
    write(tmp_path, "test", [1])
    with pytest.raises(ValueError, match=rf"train_32x32\.mat has label {label}; allowed: 1\.\.10"):
        svhn(data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"y": None}, "it has X, not X and y"),
        ({"y": np.ones((2, 1), np.uint8)}, r"X is \(32, 32, 3, 3\) and y is \(2, 1\)"),
        ({"X": np.zeros((28, 28, 3, 3), np.uint8)}, r"X is \(28, 28, 3, 3\)"),
        ({"X": np.zeros((32, 32, 3, 3))}, "X is float64; allowed: uint8"),
    ],
)
def test_wrong_content(tmp_path, replaced, message):
    write(tmp_path, "train", [1, 2, 3], **replaced)
    write(tmp_path, "test", [1])
    with pytest.raises(ValueError, match=message):
        svhn(data_dir=str(tmp_path))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("keep", [0, 100, 2000, -20])
def test_truncated_file(tmp_path, compressed, keep):
    write(tmp_path, "train", [1, 2, 3], compressed)
    write(tmp_path, "test", [1])
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"train_32x32\.mat is truncated, damaged.*fedskew data fetch svhn"):
        svhn(data_dir=str(tmp_path))


def test_not_a_mat_file(tmp_path):
    (tmp_path / "train_32x32.mat").write_bytes(b"<html>not found</html>" * 20)
    write(tmp_path, "test", [1])
    with pytest.raises(ValueError, match=r"train_32x32\.mat is truncated, damaged or not a MATLAB 5 file"):
        svhn(data_dir=str(tmp_path))


def test_real_counts_and_statistics(real):
    data = svhn()
    assert len(data.x_train) == 73_257
    assert len(data.x_test) == 26_032
    assert torch.bincount(data.y_test).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    for channel in range(3):
        pixels = data.x_train[:, channel].double()
        assert float(pixels.mean()) == pytest.approx(data.mean[channel], abs=1e-4)
        assert float(pixels.std(correction=0)) == pytest.approx(data.std[channel], abs=1e-4)


@pytest.mark.filterwarnings("error")
def test_files_of_another_length_are_used_with_a_notice(tmp_path):
    write(tmp_path, "train", [1, 2])
    write(tmp_path, "test", [9])
    with pytest.warns(UserWarning, match=r"svhn: train_32x32\.mat, test_32x32\.mat are not the official files"):
        svhn(data_dir=str(tmp_path))
