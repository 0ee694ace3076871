"""Modules of the user's own: which they are, and which of them a file imports."""

import ast
import hashlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_read: dict[Path, str] = {}
"""Digests of the modules' files when this process imported them."""


@lru_cache
def installed(module: str | None) -> bool:
    """Whether a module belongs to Python, fedskew, or another installed package."""
    root = (module or "").partition(".")[0]
    if root == "__main__":  # in a notebook, its file belongs to an installed program
        return False
    if root == "fedskew" or root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or getattr(sys.modules.get(module or ""), "__file__", None)
    return file is not None and _of_a_package(file)


def digest_with_imports(path: Path) -> str:
    """The sha256 of a file's bytes; if it imports modules of the user's own, over theirs as well.

    The file has been imported. A module that has changed since then is refused: Python keeps the old one.
    """
    sha256 = _sha256(path)
    if not (files := imported_files(path)):
        return sha256
    digests = {name: _sha256(file) for name, file in files.items()}
    for name, file in files.items():
        if _read.setdefault(file, digests[name]) != digests[name]:
            raise ValueError(f"{file}, which {path} imports, has changed since Python read it; start Python again")
    return hashlib.sha256(repr((sha256, sorted(digests.items()))).encode()).hexdigest()


def imported_files(path: Path) -> dict[str, Path]:
    """The files of the user's own modules that a file imports, directly or through one another, by module.

    All import statements count, those inside functions too; `importlib` is not followed.
    """
    found: dict[str, Path] = {}
    waiting = [*_imports(path.read_bytes(), "")]
    while waiting:
        name = waiting.pop()
        if name in found or (file := _own_file(name)) is None:
            continue
        found[name] = file
        if file.suffix == ".py":
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            waiting += _imports(file.read_bytes(), package)
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=256)
def _imports(source: bytes, package: str) -> frozenset[str]:
    """The names that may be modules in the import statements of a module in a package."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            named += [f"{home}.{alias.name}" for alias in node.names]
    return frozenset(whole for name in named for whole in _with_parents(name))


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _own_file(name: str) -> Path | None:
    """Where a module of the user's own is; None for another's, and if there is none."""
    root = name.partition(".")[0]
    if root in ("", "fedskew", "__main__") or root in sys.stdlib_module_names:
        return None
    base = _file_of(root)
    if base is not None and _of_a_package(base):
        return None
    file = _file_of(name)
    return None if file is None or _of_a_package(file) or not Path(file).is_file() else Path(file)


def _file_of(name: str) -> str | None:
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    found = _spec_of(name)
    return found.origin if found is not None and found.has_location else None


def _spec_of(name: str) -> ModuleSpec | None:
    """Found without importing anything: `find_spec` imports the packages above a module."""
    above = name.rpartition(".")[0]
    if not above:
        return importlib.util.find_spec(name)
    parent = getattr(sys.modules[above], "__spec__", None) if above in sys.modules else _spec_of(above)
    places = None if parent is None else parent.submodule_search_locations
    return None if places is None else PathFinder.find_spec(name, places)


def _of_a_package(file: str) -> bool:
    places = {*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()}
    return any(Path(file).is_relative_to(place) for place in places if Path(place).name.endswith("-packages"))
