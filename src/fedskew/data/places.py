"""Where data files are: `data_dir`, else the variable FEDSKEW_DATA, else `data/` in the current folder."""

import os
from pathlib import Path


def data_root(data_dir: str | None = None) -> Path:
    return user_path(data_dir or os.environ.get("FEDSKEW_DATA") or "data")


def user_path(text: str) -> Path:
    """A path as people write it, with ~ for a home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{text}: there is no such home; allowed: a path that exists, ~/ for your own") from None


def find(name: str, candidates: list[str], data_dir: str | None = None) -> Path:
    """The first of several files or folders that exists below the data folder, or below its folder `name`."""
    root = data_root(data_dir)
    for folder in (root, root / name):
        for candidate in candidates:
            if (folder / candidate).exists():
                return folder / candidate
    raise FileNotFoundError(missing(name, candidates, root))


def missing(name: str, candidates: list[str], root: Path) -> str:
    """Which file is not there, where it was looked for, and how to get it."""
    return (
        f"{name} is not in {root.absolute()}: looked for {' or '.join(candidates)} there and in {name}/; "
        f"`fedskew data fetch {name}` gets it, --data-dir or FEDSKEW_DATA say where else to look"
    )
