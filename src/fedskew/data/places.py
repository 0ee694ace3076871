"""Where data files are: `data_dir`, else the variable FEDSKEW_DATA, else `data/` in the current folder."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedskew.core.files import regular


def data_root(data_dir: str | None = None) -> Path:
    return user_path(data_dir or os.environ.get("FEDSKEW_DATA") or "data")


def user_path(text: str) -> Path:
    """A path in which ~ stands for a home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{text}: there is no such home folder; allowed: an existing path, ~/ for your own home"
        ) from None


def find(name: str, candidates: list[str], data_dir: str | None = None, *, apart: bool = False) -> Path:
    """The first of several files or folders that exists in the data folder, or in its subfolder `name`; only there if
    it is `apart`."""
    root = data_root(data_dir)
    for folder in (root / name,) if apart else (root, root / name):
        for candidate in candidates:
            if (folder / candidate).exists():
                return folder / candidate
    place, also = (root / name, "") if apart else (root, f" and in {name}/")
    raise FileNotFoundError(
        f"{name} is not in {place.absolute()}: looked for {' or '.join(candidates)} there{also}; "
        f"run `fedskew data fetch {name}`, or set --data-dir or FEDSKEW_DATA to look elsewhere"
    )


def notice_others(name: str, paths: Sequence[Path], official: Mapping[str, int]) -> None:
    """Warn if a file is not the official one of its name, judged by its length; it is used anyway."""
    other = [path.name for path in paths if regular(path).stat().st_size != official[path.name]]
    if other:
        warnings.warn(f"{name}: {', '.join(other)} are not the official files; they are used anyway", stacklevel=3)
