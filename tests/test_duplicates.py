"""No block of code stands twice in the package."""

import ast
from collections import defaultdict
from pathlib import Path

import fedskew

_ROOT = Path(fedskew.__file__).parent
_MOST = 10
"""Lines that two places may share."""


def _lines(path: Path) -> list[tuple[int, str]]:
    """What a file says, line by line with their numbers: no blank lines, comments, imports or docstrings."""
    text = path.read_text()
    passed_over = set[int]()
    for node in ast.walk(ast.parse(text)):
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if said or isinstance(node, ast.Import | ast.ImportFrom):
            passed_over |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = [(number, " ".join(line.split())) for number, line in enumerate(text.splitlines(), 1)]
    return [(n, line) for n, line in numbered if line and not line.startswith("#") and n not in passed_over]


def _repeated(files: dict[str, list[tuple[int, str]]]) -> list[str]:
    """Where blocks of more than so many lines begin that stand elsewhere too."""
    places = defaultdict[tuple[str, ...], list[str]](list)
    for name, lines in files.items():
        for start in range(len(lines) - _MOST):
            block = lines[start : start + _MOST + 1]
            places[tuple(line for _, line in block)].append(f"{name}:{block[0][0]}")
    return [" = ".join(found) for found in places.values() if len(found) > 1]


def test_no_block_of_more_than_ten_lines_stands_twice():
    assert _repeated({str(path.relative_to(_ROOT)): _lines(path) for path in sorted(_ROOT.rglob("*.py"))}) == []


def test_a_block_that_stands_twice_is_found_whatever_its_indentation(tmp_path):
    body = [f"x{i} = {i}" for i in range(_MOST + 1)]
    (tmp_path / "one.py").write_text("import os\n" + "\n\n".join(body))
    (tmp_path / "two.py").write_text("def f():\n" + "\n".join(f"    {line}  " for line in body))
    files = {name: _lines(tmp_path / name) for name in ("one.py", "two.py")}
    assert _repeated(files) == ["one.py:2 = two.py:2"]
    assert _repeated({name: lines[:_MOST] for name, lines in files.items()}) == []
