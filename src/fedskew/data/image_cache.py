"""Decoded images on disk, memory-mapped: decoding happens once for a list of files, and again when it changes.

The cache is `.fedskew-cache` in the folder of the data, or a separate folder in FEDSKEW_CACHE. It holds a .npy file of
all images and a .json index that names it, lists the files it was made from (relative path, size, time of change), and
keeps what was computed from the images. Files get their names only when they are complete.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.core.files import replacing
from fedskew.data.places import user_path

Pixels = NDArray[np.uint8]
Notes = dict[str, Any]


@dataclass(frozen=True)
class ImageCache:
    """The place of one list of files: `index` is the same for the same folders, `fingerprint` for the same files."""

    index: Path
    fingerprint: str

    @classmethod
    def of(cls, root: Path, files: Sequence[Path], *options: Any) -> "ImageCache":
        """`options` are everything else that decides the images."""
        names = [path.relative_to(root).as_posix() for path in files]
        stats = [path.stat() for path in files]
        facts = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in zip(names, stats, strict=True)]
        folders = sorted({name.rpartition("/")[0] for name in names})
        index = _folder(root) / f"images-{_sha256([options, folders])[:16]}.json"
        return cls(index, _sha256([options, facts]))

    def read(self) -> tuple[Pixels, Notes] | None:
        """The images [n, C, H, W] of exactly these files, if cached and complete; writing to them changes no file."""
        try:
            content = json.loads(self.index.read_bytes())
            if content["fingerprint"] != self.fingerprint:
                return None
            path = self.index.with_name(content["images"])
            return np.load(path, mmap_mode="c", allow_pickle=False), content["notes"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(
        self, blocks: Iterator[Pixels], shape: tuple[int, ...], describe: Callable[[Pixels], Notes]
    ) -> tuple[Pixels, Notes]:
        """Write the images, then the index that names them and has what `describe` computes; remove older images."""
        self.index.parent.mkdir(parents=True, exist_ok=True)
        path = self.index.with_name(f"{self.index.stem}-{self.fingerprint[:16]}.npy")
        with replacing(path) as handle:
            np.lib.format.write_array_header_1_0(handle, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for block in blocks:
                handle.write(block.data)
        images = np.load(path, mmap_mode="c", allow_pickle=False)
        notes = describe(images)
        with replacing(self.index) as handle:
            content = {"fingerprint": self.fingerprint, "images": path.name, "notes": notes}
            handle.write(json.dumps(content).encode())
        for old in self.index.parent.glob(f"{self.index.stem}-*.npy"):
            if old != path:
                with suppress(OSError):
                    old.unlink()
        return images, notes


def _folder(root: Path) -> Path:
    chosen = os.environ.get("FEDSKEW_CACHE")
    return user_path(chosen) / _sha256(str(root.resolve()))[:16] if chosen else root / ".fedskew-cache"


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
