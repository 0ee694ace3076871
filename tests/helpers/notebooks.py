"""Cells of notebooks, run as IPython does: the lines of each are kept where `inspect` finds them."""

import itertools
import json
import linecache
from pathlib import Path
from typing import Any

_numbers = itertools.count()


def run_cell(source: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run code as a cell does, in a namespace that others may share."""
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    name = f"<cell {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)
    return namespace


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, which must be one of format 4 without outputs."""
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], sorted(notebook)) == (4, ["cells", "metadata", "nbformat", "nbformat_minor"])
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
