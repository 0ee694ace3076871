"""Reading and writing the user's files: what is no file is never waited for, and every failure names its file."""

import errno
import os
import socket
from pathlib import Path

import pytest

from fedskew.core.files import check_target, naming, parse_json, read_text, read_toml, reason, regular, write_whole
from fedskew.data.cifar import cifar10
from fedskew.data.femnist import femnist
from fedskew.data.folder import fingerprint, folder
from fedskew.data.imagenet12 import read_classes
from fedskew.data.svhn import svhn
from fedskew.paper.profiles import find_profile
from fedskew.partition import export, read_split
from fedskew.report import figures
from fedskew.runs.results import write_lines


def test_a_regular_file_and_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to("a")
    assert regular(tmp_path / "a") == tmp_path / "a"
    assert regular(str(tmp_path / "b")) == tmp_path / "b"


def test_everything_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    Path("endless").symlink_to("endless")
    Path("gone").symlink_to("nowhere")
    Path("zero").symlink_to("/dev/zero")
    for name, message in {
        "pipe": "pipe is a pipe; a regular file is needed",
        "socket": "socket is a socket; ",
        "zero": "zero is a device; ",
        ".": r"\. is a folder; ",
        "gone": "there is no file gone",
        "endless": "endless cannot be read: Too many levels of symbolic links",
        "a\0b": "cannot be read: embedded null byte",
        "a" * 300: "cannot be read: File name too long",
    }.items():
        with pytest.raises(ValueError, match=message):
            regular(name)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("split.json", lambda root: read_split(root / "split.json", 3)),
        ("mine.toml", lambda root: find_profile(str(root / "mine.toml"))),
        ("classes.txt", lambda root: read_classes(str(root / "classes.txt"))),
        ("train_32x32.mat", lambda root: svhn(data_dir=str(root))),
        ("cifar-10-binary.tar.gz", lambda root: cifar10(str(root))),
        ("cifar-10-batches-bin/data_batch_1.bin", lambda root: cifar10(str(root))),
        ("all_data/a.json", lambda root: femnist(0, 1, str(root))),
        ("femnist/a.parquet", lambda root: femnist(0, 1, str(root))),
        ("train/a/0.png", lambda root: folder(str(root))),
        ("train/a/0.png", lambda root: fingerprint(str(root))),
        ("lines.jsonl", lambda root: write_lines(root / "lines.jsonl", [])),
    ],
)
def test_no_reader_waits_for_a_pipe(tmp_path: Path, name: str, read) -> None:
    for other in ("train/b/0.png", "test/a/0.png", "test_32x32.mat"):
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).touch()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}.* is a pipe"):
        read(tmp_path)


@pytest.mark.parametrize(
    "write",
    [lambda path: write_whole(path, b"x"), lambda path: export(path, "x", []), lambda path: figures.save(None, path)],
)
def test_no_writer_replaces_or_waits_for_what_is_no_file(tmp_path: Path, write) -> None:
    os.mkfifo(tmp_path / "out.png")
    with pytest.raises(ValueError, match=r"out.png is a pipe; allowed: a new file, or a regular one to overwrite"):
        write(tmp_path / "out.png")
    assert (tmp_path / "out.png").is_fifo()
    with pytest.raises(ValueError, match="is a folder; allowed: "):
        write(tmp_path)
    check_target(tmp_path / "new")


def test_a_full_disk_names_what_was_written(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(OSError, match=r"No space left") as caught, naming(tmp_path / "mine"), full.open("wb") as handle:
        handle.write(b"x" * 2**20)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "mine"))


def test_a_failure_of_a_temporary_file_is_one_of_the_file_it_becomes(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, naming("mine"):
        (tmp_path / ".mine.part").open()
    assert caught.value.filename == "mine"


def test_text_is_utf8(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfab")
    assert read_text(path) == "ab"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ValueError, match=r"text is not UTF-8 text \(byte 2\)"):
        read_text(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = [", r"is not TOML: Invalid value"),
        ("a = " + "[" * 5000, "is not TOML: it is nested too deeply"),
        ("a = " + "9" * 5000, "is not TOML: a number has too many digits"),
    ],
)
def test_what_is_not_toml(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=f"a.toml {message}"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":\n }', "is not JSON: line 2, column 2"),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        ("9" * 5000, "is not JSON: a number has too many digits"),
    ],
)
def test_what_is_not_json(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"a.json {message}"):
        parse_json("a.json", text)


def test_words_of_python_are_not_repeated() -> None:
    assert reason(KeyError("users")) == reason(ValueError("")) == "its structure is broken"
    assert reason(ValueError("the first line:\nand another")) == "the first line"
