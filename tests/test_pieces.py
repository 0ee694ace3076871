"""Files in pieces come back as they were, and what is damaged or missing is named."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.pieces import join, split


def test_pieces_join_to_the_files_they_were(tmp_path: Path) -> None:
    source, pieces, target = (tmp_path / name for name in ("source", "pieces", "target"))
    (source / "deep").mkdir(parents=True)
    noise = np.random.default_rng(0).bytes(3 << 20)
    for name, content in (("a.bin", noise), ("deep/b.bin", b"b"), ("empty", b"")):
        (source / name).write_bytes(content)
    listed = split(source, pieces, most=1)
    assert len(listed["a.bin"]["pieces"]) == 4  # noise does not compress
    late = pieces / listed["a.bin"]["pieces"][1]
    kept = late.read_bytes()
    late.unlink()
    assert join(pieces, target) == ["a.bin"]
    assert (target / "deep/b.bin").read_bytes() == b"b"
    late.write_bytes(kept)
    assert join(pieces, target) == []
    assert (target / "a.bin").read_bytes() == noise
    assert (target / "empty").read_bytes() == b""


def test_a_file_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(b"a")
    split(tmp_path / "source", tmp_path / "pieces", 1)
    listed = tmp_path / "pieces" / "files.json"
    listed.write_text(listed.read_text().replace('"a"', '"../a"'))
    with pytest.raises(ValueError, match="outside"):
        join(tmp_path / "pieces", tmp_path / "target")
