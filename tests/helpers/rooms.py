"""Who imports whom, read off the source, and the levels that rooms stand on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedskew

ROOT = Path(fedskew.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PARTS = ("losses", "corrections", "optimizers", "aggregators", "readouts", "partition")
LEVELS = (
    ("core",),
    (*PARTS, "progress"),
    ("algorithms", "data", "models"),
    ("engine", "knobs"),
    ("runs",),
    ("simulation", "tracking"),
    ("diagnostics", "report", "flower"),
    ("api",),
    ("paper",),
    ("advice",),
    ("cli",),
    ("__main__",),
)
"""Every room stands on lower ones and knows nothing of those beside or above it."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs: what is only for the type checker is left out."""
    for child in ast.iter_child_nodes(tree):
        if is_type_checking(child):
            for rest in child.orelse:  # type: ignore[attr-defined]
                yield rest
                yield from nodes(rest)
            continue
        yield child
        yield from nodes(child)


def imports(path: Path, source: str | None = None) -> set[str]:
    """The modules a file imports; `from fedskew import tree` is fedskew.core.tree, `from a.b import c` is a.b."""
    found: set[str] = set()
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in nodes(ast.parse(source if source is not None else path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if base == "fedskew" or is_module(inner) else base)
    return found


def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def own(path: Path) -> set[str]:
    return {name for name in imports(path) if name == "fedskew" or name.startswith("fedskew.")}


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def below(folder: str) -> list[Path]:
    """A module of that name, or all files of a package."""
    return [path for path in FILES if within(module_of(path), f"fedskew.{folder}")]


def room(name: str) -> str:
    """`losses` of `fedskew.losses.counts`; nothing for the package itself and its version."""
    return name.split(".")[1] if name.count(".") and name != "fedskew.__version__" else ""


def graph() -> dict[str, set[str]]:
    """The rooms that each room imports; the folders of parts are one."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        here = _drawn(module_of(path))
        found.setdefault(here, set()).update(_drawn(name) for name in own(path))
    return {here: others - {here, ""} for here, others in sorted(found.items()) if here not in ("", "__main__")}


def _drawn(name: str) -> str:
    return "parts" if room(name) in PARTS else room(name)


def picture() -> str:
    """The graph for Mermaid, without arrows that follow from others."""
    rooms = graph()
    below = {name: _reached(name, rooms) for name in rooms}
    lines = ["```mermaid", "flowchart BT"]
    for name, others in rooms.items():
        implied = set().union(*(below[other] for other in others)) if others else set()
        lines += [f"    {other} --> {name}" for other in sorted(others - implied)]
    return "\n".join([*lines, "```"])


def _reached(name: str, rooms: dict[str, set[str]]) -> set[str]:
    return set().union(*({other} | _reached(other, rooms) for other in rooms[name])) if rooms[name] else set()
