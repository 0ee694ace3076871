"""What is public is stated once, is there, is documented, and is all that the examples use."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedskew
from tests.helpers.notebooks import run_cell

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs/api.md").read_text()


def test_every_public_name_is_there():
    for name in fedskew.__all__:
        assert getattr(fedskew, name).__name__ == name or name == "cross_entropy", name
    assert set(fedskew._HOMES) <= set(fedskew.__all__)
    assert sorted(fedskew.__all__) == fedskew.__all__
    assert set(fedskew.__all__) <= set(dir(fedskew))


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "src/fedskew/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert sorted(alias.name for node in block.body for alias in node.names) == fedskew.__all__


def test_every_public_name_is_documented_and_nothing_else():
    table = API.partition("\n## Public names\n")[2]
    assert re.findall(r"^\| `(\w+)` \| \S.*\. \|$", table, re.MULTILINE) == fedskew.__all__


def test_the_package_itself_is_imported_without_torch():
    code = "import sys, fedskew; fedskew.__all__; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_simulation_can_do_without_is_not_imported():
    """Drawing, tables, images, compiling and the command line are imported where they are used."""
    heavy = "PIL scipy matplotlib rich typer pandas sklearn sympy torch._dynamo torch._inductor triton flwr tomllib"
    code = (
        "import sys, torch; before = {*sys.modules}; from fedskew import Run, simulate; "
        f"sys.exit(' '.join({{*{heavy.split()}}} & {{*sys.modules}} - before) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_python_of_the_document_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in re.findall(r"```python\n(.*?)```", API, re.S):
        run_cell(code, namespace)
    assert capsys.readouterr().out.endswith("\nTrue\n"), "plain PyTorch gives what the loaded model does"


def test_examples_use_what_is_public():
    sources = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    assert len(sources) > 2
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedskew"):
                assert node.module in ("fedskew", "fedskew.flower"), node.module
                if node.module == "fedskew":
                    assert all(hasattr(fedskew, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.startswith("fedskew.")]


@pytest.mark.parametrize("looking", [True, False])
def test_importing_leaves_garbage_collection_as_it_was(looking):
    """Also when the import fails."""
    code = f"import gc; gc.{'enable' if looking else 'disable'}(); import fedskew; from fedskew import Run, fedlc; "
    code += "getattr(fedskew, 'nothing', None); print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(looking)
