"""A user's own arrays: layouts, clients, and what is refused."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data.npz import fingerprint, npz

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (12, 6, 5, 3), np.uint8)


def arrays(**changed: Any) -> dict[str, Any]:
    """Twelve training and four test images; None takes an array away."""
    plain = {"x_train": IMAGES, "y_train": np.arange(12) % 3, "x_test": IMAGES[:4], "y_test": np.array([0, 1, 2, 0])}
    return {name: array for name, array in {**plain, **changed}.items() if array is not None}


def saved(path: Path, **changed: Any) -> str:
    np.savez(path / "mine.npz", **arrays(**changed))
    return str(path / "mine.npz")


def test_channels_last_come_first(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = npz(path)
    assert data.name == f"npz:{path}"
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == torch.int64
    assert (data.x_train.numpy() == IMAGES.transpose(0, 3, 1, 2)).all()
    assert data.num_classes == 3
    assert data.mean == pytest.approx(IMAGES.mean((0, 1, 2)))
    assert data.std == pytest.approx(IMAGES.std((0, 1, 2)))
    assert data.client_train is None
    whole = data.prepare(data.x_train, torch.float64)
    assert whole.mean((0, 2, 3)).abs().max() < 1e-12


def test_channels_first_stay(tmp_path: Path) -> None:
    first = IMAGES.transpose(0, 3, 1, 2)
    data = npz(saved(tmp_path, x_train=first, x_test=first[:4]))
    assert (data.x_train.numpy() == first).all()


def test_greyscale_without_a_channel(tmp_path: Path) -> None:
    grey = IMAGES[..., 0]
    data = npz(saved(tmp_path, x_train=grey, x_test=grey[:4]))
    assert data.input_shape == (1, 6, 5)
    assert data.mean == pytest.approx((grey.mean(),))


def test_bytes_as_features(tmp_path: Path) -> None:
    flat = IMAGES.reshape(12, -1)
    data = npz(saved(tmp_path, x_train=flat, x_test=flat[:4]))
    assert data.input_shape == (90,)
    assert data.prepare(data.x_train, torch.float64).mean().abs() < 1e-12


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_used_as_they_are(tmp_path: Path, dtype: type) -> None:
    x = RNG.normal(size=(12, 7)).astype(dtype)
    data = npz(saved(tmp_path, x_train=x, x_test=x[:4]))
    assert data.x_train.dtype == torch.float32
    assert data.mean is None
    assert (data.prepare(data.x_train, torch.float32).numpy() == x.astype(np.float32)).all()


@pytest.mark.parametrize("name", ["client", "client_train"])
def test_clients_are_numbered_in_sorted_order(tmp_path: Path, name: str) -> None:
    owners = {name: np.array([7, 7, -2, 40] * 3), "client_test": np.array([40, 7, -2, -2])}
    data = npz(saved(tmp_path, **owners))
    assert data.client_train is not None
    assert data.client_test is not None
    assert data.client_train.tolist() == [1, 1, 0, 2] * 3
    assert data.client_test.tolist() == [2, 1, 0, 0]


def test_clients_may_be_texts_and_test_clients_are_optional(tmp_path: Path) -> None:
    data = npz(saved(tmp_path, client=np.array(["b", "a", "c"] * 4)))
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 0, 2] * 4
    assert data.client_test is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_test": None, "y_test": None}, r"has no x_test, y_test; needed: x_train, y_train"),
        ({"y_train": np.array([object()] * 12)}, r"y_train cannot be read: it holds objects, which are refused"),
        ({"y_train": np.arange(11)}, r"y_train has the shape \[11\] for examples \[12, 6, 5, 3\]"),
        ({"y_train": np.zeros((12, 3), np.int64)}, r"y_train has the shape \[12, 3\]; allowed: one axis"),
        ({"y_train": np.arange(12) % 3 + 1}, r"y_train has label 1 but not 0; allowed: 0..C-1"),
        ({"y_train": np.arange(12) % 3 - 1}, r"y_train has label -1 but not 0"),
        ({"y_train": np.array([0, 1, 3] * 4)}, r"y_train has label 3 but not 2"),
        ({"y_test": np.array([0, 1, 2, 3])}, r"y_test has label 3, outside the 0..2 of y_train"),
        ({"y_test": np.array([0, 1, -2, 0])}, r"y_test has label -2, outside"),
        ({"y_train": np.zeros(12)}, r"y_train holds float64; allowed: integers"),
        (
            {"x_test": np.zeros((0, 6, 5, 3), np.uint8), "y_test": np.zeros(0, np.int64)},
            r"x_test is empty: its shape is \[0, 6, 5, 3\]",
        ),
        ({"x_train": IMAGES.astype(np.int64)}, r"x_train holds int64; allowed: uint8 images or floating"),
        ({"x_train": np.zeros(12, np.uint8)}, r"x_train has the shape \[12\] for examples \[12\]"),
        ({"x_train": np.uint8(3)}, r"x_train has the shape \[\] for examples \[\]"),
        ({"x_train": np.zeros((12, 4, 5, 4), np.uint8)}, r"could be \[n, H, W, C\] or \[n, C, H, W\]"),
        ({"x_test": IMAGES[:4, :5]}, r"x_train and x_test differ: uint8 \[3, 6, 5\] and uint8 \[3, 5, 5\]"),
        ({"x_train": np.full((12, 4), np.nan)}, r"x_train\[0, 0\] is nan; allowed: finite numbers up to 3.40e\+38"),
        (
            {"x_test": np.array([[1.0, 2.0]] * 3 + [[3.0, 1e300]])},
            r"x_test\[3, 1\] is 1e\+300; allowed: finite numbers up to",
        ),
        ({"x_train": np.zeros((12, 0))}, r"x_train is empty: its shape is \[12, 0\]"),
        ({"client": np.zeros(9, np.int64)}, r"client has the shape \[9\] for examples"),
        ({"client": np.zeros(12, np.int64), "client_train": np.zeros(12, np.int64)}, r"both client and client_train"),
        ({"client": np.zeros(12)}, r"clients are float64; allowed: integers or strings"),
        ({"client_test": np.zeros(4, np.int64)}, r"client_test but no client_train"),
        ({"client": np.zeros(12, np.int64), "client_test": np.array([0, 0, 5, 0])}, r"client 5 of client_test has no"),
    ],
)
def test_bad_arrays(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        npz(saved(tmp_path, **changed))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.npz"):
        npz(str(tmp_path / "none.npz"))
    np.save(tmp_path / "one.npy", IMAGES)
    with pytest.raises(ValueError, match=r"one.npy is not an .npz file"):
        npz(str(tmp_path / "one.npy"))
    whole = saved(tmp_path)
    os.truncate(whole, os.path.getsize(whole) // 2)
    with pytest.raises(ValueError, match=r"mine.npz is not an .npz file, or an incomplete one"):
        npz(whole)


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    path = Path(saved(tmp_path))
    content = bytearray(path.read_bytes())
    content[400] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x_train cannot be read"):
        npz(str(path))


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


HUGE = npy(np.zeros((12, 4))).replace(b"(12, 4), }    ", b"(1" + b"0" * 10 + b",)}")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"", "it is damaged or cut short"),
        (b"\x93NUMPY\x01\x00\x05\x00((((\n", "it is damaged or cut short"),
        (npy(IMAGES)[:-1], "it is damaged or cut short"),
        (HUGE, "damaged or cut short|larger than memory"),
    ],
    ids=["empty", "header", "cut short", "huge"],
)
def test_a_member_that_is_no_array(tmp_path: Path, member: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        for name, array in arrays().items():
            archive.writestr(f"{name}.npy", member if name == "x_train" else npy(array))
    with pytest.raises(ValueError, match=f"mine.npz: x_train .*({message})"):
        npz(str(tmp_path / "mine.npz"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match=r"mine.npz is a pipe; a regular file is needed"):
        npz(str(tmp_path / "mine.npz"))


def test_fingerprint_is_of_the_bytes(tmp_path: Path) -> None:
    before = fingerprint(saved(tmp_path))
    assert len(before) == 64
    assert fingerprint(saved(tmp_path)) == before
    assert fingerprint(saved(tmp_path, y_test=np.array([0, 1, 2, 1]))) != before
