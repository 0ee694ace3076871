"""CIFAR-10 and CIFAR-100: small files in the official layout, and the real ones where FEDSKEW_DATA has them."""

import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import cifar
from fedskew.data.cifar import cifar10, cifar100
from fedskew.data.places import find

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FILES10 = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.fixture(autouse=True)
def _small(request, monkeypatch):
    """Three images in a batch, read two at a time, but where a test is about the real files."""
    if "real" not in request.fixturenames:
        monkeypatch.setattr(cifar, "BATCH", 3)
        monkeypatch.setattr(cifar, "_CHUNK", 2)


@pytest.fixture
def real():
    if "FEDSKEW_DATA" not in os.environ:
        pytest.skip("FEDSKEW_DATA is not set")
    try:
        return find("cifar10", ["cifar-10-batches-bin"])
    except FileNotFoundError:
        pytest.skip("CIFAR-10 is not in FEDSKEW_DATA")


def records(seed, n, classes):
    """n records of labels and pixels, as the binary version stores them."""
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.integers(0, high, n) for high in classes], 1)
    return np.concatenate([labels, rng.integers(0, 256, (n, 3072))], 1).astype(np.uint8)


def write_binary10(root):
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    parts = [records(i, 3, [10]) for i in range(6)]
    for file, part in zip(FILES10, parts, strict=True):
        (folder / f"{file}.bin").write_bytes(part.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
    return np.concatenate(parts)


def write_binary100(root):
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    train, test = records(1, 15, [20, 100]), records(2, 3, [20, 100])
    (folder / "train.bin").write_bytes(train.tobytes())
    (folder / "test.bin").write_bytes(test.tobytes())
    for kind, count in (("fine", 100), ("coarse", 20)):
        (folder / f"{kind}_label_names.txt").write_text("".join(f"{kind} {i}\n" for i in range(count)))
    return np.concatenate([train, test])


def python2(value):
    """A value as the official files have it: the opcodes of Python 2's cPickle (protocol 2) and of its numpy."""
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    if isinstance(value, int):
        return b"K" + bytes([value])
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(key) + python2(item) for key, item in value.items()) + b"u"
    shape = b"".join(b"J" + struct.pack("<i", n) for n in value.shape) + b"\x86"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = value.tobytes()
    begun = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return begun + b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"


def pickled2(value):
    return b"\x80\x02" + python2(value) + b"."


def test_a_huge_number_of_an_object_is_not_made_room_for(tmp_path):
    """Opcode r, LONG_BINPUT: remember this object under a number of four bytes."""
    write_python10(tmp_path)
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")
    with pytest.raises(ValueError, match="data is missing"):
        cifar10(str(tmp_path))


def write_python10(root, **replaced):
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    parts = [records(i, 3, [10]) for i in range(6)]
    for file, part in zip(FILES10, parts, strict=True):
        content = {
            "batch_label": "one of 5",
            "labels": part[:, 0].tolist(),
            "data": part[:, 1:],
            "filenames": ["a.png"],
        }
        (folder / file).write_bytes(pickled2({**content, **replaced}))
    (folder / "batches.meta").write_bytes(pickled2({"label_names": TEN, "num_vis": 255}))
    return np.concatenate(parts)


def packed(root, folder, archive):
    """The folder as an official archive, and no longer as a folder."""
    with tarfile.open(root / archive, "w:gz") as tar:
        tar.add(root / folder, folder)
    for path in (root / folder).iterdir():
        path.unlink()
    (root / folder).rmdir()


def check(data, rows, label_bytes, label_at):
    assert data.x_train.shape == (15, 3, 32, 32)
    assert data.x_test.shape == (3, 3, 32, 32)
    assert str(data.x_train.dtype) == "torch.uint8"
    assert str(data.y_train.dtype) == "torch.int64"
    pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(np.concatenate([data.x_train, data.x_test]), pixels)
    assert [*data.y_train.tolist(), *data.y_test.tolist()] == rows[:, label_at].tolist()


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("below", ["", "cifar10"])
def test_binary_cifar10(tmp_path, archived, below):
    rows = write_binary10(tmp_path / below)
    if archived:
        packed(tmp_path / below, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    data = cifar10(str(tmp_path))
    check(data, rows, 1, 0)
    assert data.num_classes == 10
    assert data.class_names == tuple(TEN)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(("labels", "at", "classes"), [("fine", 1, 100), ("coarse", 0, 20)])
def test_binary_cifar100(tmp_path, archived, labels, at, classes):
    rows = write_binary100(tmp_path)
    if archived:
        packed(tmp_path, "cifar-100-binary", "cifar-100-binary.tar.gz")
    data = cifar100(labels, str(tmp_path))
    check(data, rows, 2, at)
    assert data.num_classes == classes
    assert data.class_names == tuple(f"{labels} {i}" for i in range(classes))


@pytest.mark.parametrize("archived", [False, True])
def test_python_cifar10(tmp_path, archived):
    rows = write_python10(tmp_path)
    if archived:
        packed(tmp_path, "cifar-10-batches-py", "cifar-10-python.tar.gz")
    data = cifar10(str(tmp_path))
    check(data, rows, 1, 0)
    assert data.class_names == tuple(TEN)


@pytest.mark.parametrize(("labels", "at"), [("fine", 1), ("coarse", 0)])
def test_python_cifar100(tmp_path, labels, at):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    rows = np.concatenate([records(1, 15, [20, 100]), records(2, 3, [20, 100])])
    for file, part in (("train", rows[:15]), ("test", rows[15:])):
        content = {"coarse_labels": part[:, 0].tolist(), "fine_labels": part[:, 1].tolist(), "data": part[:, 2:]}
        (folder / file).write_bytes(pickled2(content))
    check(cifar100(labels, str(tmp_path)), rows, 2, at)


def test_python_files_saved_again_by_this_numpy(tmp_path):
    rows = write_python10(tmp_path)
    for file, part in zip(FILES10, np.split(rows, 6), strict=True):
        content = {"labels": part[:, 0].tolist(), "data": np.ascontiguousarray(part[:, 1:])}
        (tmp_path / "cifar-10-batches-py" / file).write_bytes(pickle.dumps(content, protocol=4))
    check(cifar10(str(tmp_path)), rows, 1, 0)


def test_no_names_file(tmp_path):
    write_binary10(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "batches.meta.txt").unlink()
    assert cifar10(str(tmp_path)).class_names is None


def test_too_few_names(tmp_path):
    write_binary10(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "batches.meta.txt").write_text("airplane\n")
    with pytest.raises(ValueError, match=r"batches\.meta\.txt names 1 classes; 10 are needed"):
        cifar10(str(tmp_path))


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cifar-10-binary\.tar\.gz.*fedskew data fetch cifar10"):
        cifar10(str(tmp_path))


def test_one_file_missing(tmp_path):
    write_binary10(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"cifar-10-batches-bin has no data_batch_3\.bin.*fetch cifar10"):
        cifar10(str(tmp_path))


@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_number_of_bytes(tmp_path, change):
    rows = write_binary10(tmp_path)
    raw = rows[:3].tobytes()
    (tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin").write_bytes(raw[:-1] if change < 0 else raw + b"\0")
    with pytest.raises(
        ValueError, match=rf"data_batch_2\.bin has {9219 + change:,} bytes; 3 records of 3,073 bytes need 9,219"
    ):
        cifar10(str(tmp_path))


def test_label_out_of_range(tmp_path):
    rows = write_binary10(tmp_path)
    rows[2, 0] = 10
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows[:3].tobytes())
    with pytest.raises(ValueError, match=r"test_batch\.bin has label 10; allowed: 0\.\.9"):
        cifar10(str(tmp_path))


def test_unknown_labels(tmp_path):
    with pytest.raises(ValueError, match="labels is 'rough'; allowed: fine, coarse"):
        cifar100("rough", str(tmp_path))


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated_archive(tmp_path, share):
    write_binary10(tmp_path)
    packed(tmp_path, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz is truncated or damaged.*fetch cifar10"):
        cifar10(str(tmp_path))


def test_not_an_archive(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="truncated or damaged"):
        cifar10(str(tmp_path))


def test_links_in_an_archive_are_not_followed(tmp_path):
    write_binary10(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").unlink()
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").symlink_to("/etc/passwd")
    packed(tmp_path, "cifar-10-batches-bin", "cifar-10-binary.tar.gz")
    with pytest.raises(FileNotFoundError, match=r"has no data_batch_1\.bin"):
        cifar10(str(tmp_path))


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("file", ["data_batch_4", "batches.meta"])
def test_pickle_with_code_is_refused_and_not_run(tmp_path, protocol, file):
    write_python10(tmp_path)
    marker = tmp_path / "ran"
    raw = pickle.dumps({"labels": [0, 0, 0], "data": Hostile(marker)}, protocol)
    (tmp_path / "cifar-10-batches-py" / file).write_bytes(raw)
    with pytest.raises(ValueError, match=rf"{file} is not a plain CIFAR pickle: it asks to load .*, which is refused"):
        cifar10(str(tmp_path))
    assert not marker.exists()
    pickle.loads(raw)
    assert marker.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'exit 1'\ntR.",
        b"cbuiltins\neval\n(S'1/0'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\n_reconstruct\n(S'a'\nS'b'\ndb.",
        b"cnumpy\ndtype\nN}S'name'\nS'u1'\ns\x86b.",
        b"(lp0\n.",
        b"I1\n.",
        b"\x80\x02}(U\x04data",
        b"",
        b"\xff\xfe",
    ],
)
def test_other_pickles_are_refused(tmp_path, raw):
    write_python10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(raw)
    with pytest.raises(ValueError, match="data_batch_1 is not a plain CIFAR pickle"):
        cifar10(str(tmp_path))


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"labels": [0, 1]}, "labels is not a list of 3 labels"),
        ({"labels": [0, 1, 10]}, r"label 10; allowed: 0\.\.9"),
        ({"labels": [0, 1, "x"]}, r"label b'x'; allowed: 0\.\.9"),
        ({"data": np.zeros((2, 3072), np.uint8)}, r"data is \(2, 3072\); \(3, 3072\) is needed"),
        ({"data": "x"}, r"data is missing; \(3, 3072\) is needed"),
    ],
)
def test_wrong_content_of_a_pickle(tmp_path, replaced, message):
    write_python10(tmp_path, **replaced)
    with pytest.raises(ValueError, match=message):
        cifar10(str(tmp_path))


def test_array_that_is_not_of_bytes(tmp_path):
    write_python10(tmp_path)
    content = {"labels": [0, 0, 0], "data": np.zeros((3, 3072), np.float64)}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(ValueError, match="an array that is not of bytes"):
        cifar10(str(tmp_path))


def test_handwritten_pickle_is_what_numpy_reads():
    value = {"labels": [1, 2], "data": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    raw = pickled2(value).replace(b"numpy.core.", b"numpy._core.")
    read = pickle.load(io.BytesIO(raw), encoding="latin1")
    assert read["labels"] == [1, 2]
    np.testing.assert_array_equal(read["data"], value["data"])


def test_real_images_counts_and_statistics(real):
    data = cifar10()
    assert data.x_train[0, 0, 0, :3].tolist() == [59, 43, 50]
    assert np.bincount(data.y_train).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    for channel in range(3):
        pixels = data.x_train[:, channel].double()
        assert float(pixels.mean()) == pytest.approx(data.mean[channel], abs=1e-4)
        assert float(pixels.std(correction=0)) == pytest.approx(data.std[channel], abs=1e-4)


def test_real_files_cost_little_memory(real):
    script = (
        "import resource, sys, torch, fedskew.data.cifar as cifar\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit\n"
        "before = peak(); data = cifar.cifar10(); print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 250e6
