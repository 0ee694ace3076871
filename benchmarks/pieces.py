"""Data files in pieces, for a machine that takes only so much at a time.

    python -m benchmarks.pieces split data/cifar-10-batches-bin pieces --most 60
    python pieces.py join pieces ~/data/cifar-10-batches-bin        # there; this file needs nothing but Python

`split` compresses every file of a folder, cuts it into pieces of at most that many MiB and writes a checksum of each
whole file. Pieces may arrive in any order and in several visits: `join` writes each file whose pieces are complete,
checks it, and says what is still missing.
"""

import argparse
import hashlib
import json
import lzma
import sys
from pathlib import Path

_MIB = 1 << 20
_LIST = "files.json"


def split(folder: Path, pieces: Path, most: int) -> dict[str, dict[str, object]]:
    """The files of a folder as pieces, and a list of them with checksums."""
    pieces.mkdir(parents=True, exist_ok=True)
    listed: dict[str, dict[str, object]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        packed = lzma.compress(content, preset=6)
        cuts = [packed[at : at + most * _MIB] for at in range(0, max(1, len(packed)), most * _MIB)]
        parts = [f"{len(listed):03}-{number:03}.xz" for number in range(len(cuts))]
        for part, cut in zip(parts, cuts, strict=True):
            (pieces / part).write_bytes(cut)
        listed[name] = {"sha256": hashlib.sha256(content).hexdigest(), "pieces": parts}
    (pieces / _LIST).write_text(json.dumps(listed, indent=1))
    return listed


def join(pieces: Path, folder: Path) -> list[str]:
    """Write the files whose pieces are all here; returns the names of the others."""
    missing = []
    for name, about in json.loads((pieces / _LIST).read_text()).items():
        target, parts = folder / name, [pieces / part for part in about["pieces"]]
        if folder.resolve() not in target.resolve().parents:
            raise ValueError(f"{name} would be written outside {folder}")
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == about["sha256"]:
            continue
        if not all(part.is_file() for part in parts):
            missing.append(name)
            continue
        content = lzma.decompress(b"".join(part.read_bytes() for part in parts))
        if hashlib.sha256(content).hexdigest() != about["sha256"]:
            raise ValueError(f"{name} has another checksum than when it was split; send its pieces again")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("split", "join"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--most", type=int, default=60, help="MiB of a piece (split)")
    asked = parser.parse_args()
    if asked.what == "split":
        listed = split(asked.source, asked.target, asked.most)
        print(f"{len(listed)} files in {asked.target}")
        return
    if missing := join(asked.source, asked.target):
        sys.exit(f"still missing: {', '.join(missing)}")
    print(f"all files are in {asked.target}")


if __name__ == "__main__":
    main()
