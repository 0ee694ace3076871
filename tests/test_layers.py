"""Who may import whom, read off the source."""

import ast
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from tests.helpers.rooms import FILES, LEVELS, PARTS, ROOT, below, imports, module_of, nodes, own, room, within

GROUND = tuple(f"fedskew.core.{name}" for name in ("tree", "rng", "files", "view", "checks"))
GRADIENTS = {"grad", "backward", "vjp", "jacrev", "jacfwd", "grad_and_value", "jvp", "hessian"}


def test_the_reading_itself() -> None:
    source = (
        "from typing import TYPE_CHECKING\nimport torch.nn as nn\nfrom fedskew.core import tree, rng\n"
        "from fedskew.losses import calibration\nfrom fedskew.losses.counts import MISSING\nfrom . import proximity\n"
        "if TYPE_CHECKING:\n    from fedskew.data import Dataset\n"
        "def late():\n    from fedskew.engine import Serial\n"
    )
    assert imports(ROOT / "corrections" / "none.py", source) == {
        "typing",
        "torch.nn",
        "fedskew.core.tree",
        "fedskew.core.rng",
        "fedskew.losses.calibration",
        "fedskew.losses.counts",
        "fedskew.corrections.proximity",
        "fedskew.engine",
    }
    assert len(FILES) > 40


def test_rooms_import_lower_rooms_only() -> None:
    """So there is no circle among them."""
    height = {name: level for level, rooms in enumerate(LEVELS) for name in rooms}
    assert {room(module_of(path)) for path in FILES} == {"", *height}
    for path in FILES:
        here = room(module_of(path))
        strangers = {name for name in own(path) if room(name) and room(name) != here}
        wrong = {name for name in strangers if not here or height[room(name)] >= height[here]}
        assert not wrong, f"{path}: {wrong}"


@pytest.mark.parametrize("folder", PARTS)
def test_parts_know_trees_randomness_files_and_their_own_folder(folder: str) -> None:
    for path in below(folder):
        strangers = {name for name in own(path) if not within(name, *GROUND, f"fedskew.{folder}")}
        assert not strangers, f"{path}: {strangers}"


@pytest.mark.parametrize("name", ["tree", "rng", "files", "modules", "view", "ranks", "checks"])
def test_the_ground_floor_knows_nothing(name: str) -> None:
    assert not own(ROOT / "core" / f"{name}.py")


def test_specs_know_only_which_modules_are_the_users_own() -> None:
    assert own(ROOT / "core" / "spec.py") == {"fedskew.core.modules"}


def test_the_round_knows_no_concrete_part_and_no_data() -> None:
    assert own(ROOT / "core" / "round.py") <= {"fedskew.core.tree", "fedskew.core.view"}


def test_a_module_is_found_by_its_name() -> None:
    """`import fedskew.losses.calibration` gives a module, whatever else a package puts into its namespace."""
    names = [
        module_of(path) for path in FILES if path.stem not in ("__main__", "wandb") and "kernels" not in path.parts
    ]
    for name in names:
        module = import_module(name)
        for leaf, value in vars(module).items():
            assert isinstance(value, ModuleType) or f"{name}.{leaf}" not in names, f"{name}.{leaf}"


def test_engines_know_no_method() -> None:
    """No flag is ever added to the training loop: an engine meets an algorithm in the recipe only."""
    for path in below("engine"):
        strangers = {
            name for name in own(path) if within(name, "fedskew.algorithms", *(f"fedskew.{part}" for part in PARTS))
        }
        assert not strangers, f"{path}: {strangers}"


def test_flower_and_engine_never_meet() -> None:
    for one, other in (("flower", "engine"), ("engine", "flower")):
        for path in below(one):
            assert not {name for name in own(path) if within(name, f"fedskew.{other}")}, path


def test_only_flower_needs_flower() -> None:
    tools = ("flwr", "cryptography", "ray")
    users = {module_of(path) for path in FILES if any(within(name, *tools) for name in imports(path))}
    assert users
    assert {name for name in users if not within(name, "fedskew.flower")} == set()
    outside = [path for path in FILES if not within(module_of(path), "fedskew.flower", "fedskew.cli")]
    assert not [path for path in outside if any(within(name, "fedskew.flower") for name in own(path))]


def test_report_reads_only_the_store() -> None:
    allowed = (
        "fedskew.report",
        *(f"fedskew.runs.{name}" for name in ("store", "summary", "measures", "verdict", "versions")),
        "fedskew.core.files",
        "fedskew.core.spec",
        "fedskew.__version__",
    )
    for path in below("report"):
        strangers = {name for name in own(path) if not within(name, *allowed)}
        assert not strangers, f"{path}: {strangers}"
        assert not {name for name in imports(path) if within(name, "torch")}, path


def test_reading_a_store_does_not_wait_for_torch() -> None:
    wanted = [module_of(path) for path in below("report") if path.name != "figures.py"]
    code = f"import sys, {', '.join(['fedskew.runs.store', *wanted])}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT.parent)
    assert done.returncode == 0


def test_the_command_line_is_in_one_place() -> None:
    tools = ("argparse", "typer", "click")
    users = {module_of(path) for path in FILES if any(within(name, *tools) for name in imports(path))}
    assert users
    assert {name for name in users if not within(name, "fedskew.cli")} == set()


def test_text_is_printed_in_one_place() -> None:
    """Where control characters are written out."""
    for path in FILES:
        called = {ast.unparse(node.func) for node in nodes(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        allowed = module_of(path) == "fedskew.progress"
        assert allowed or not called & {"print", "typer.echo", "click.echo"}, path


def test_nothing_imports_the_command_line() -> None:
    for path in FILES:
        if not within(module_of(path), "fedskew.cli", "fedskew.__main__"):
            assert not {name for name in own(path) if within(name, "fedskew.cli")}, path


def gradients(source: str) -> list[str]:
    """Calls that differentiate: torch.autograd.grad, x.backward(), torch.func.grad and their kin."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in (
            "torch.autograd",
            "torch.func",
            "torch.autograd.functional",
        ):
            found += [alias.name for alias in node.names if alias.name in GRADIENTS]
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        library = owner.rpartition(".")[2] in ("autograd", "func", "functional") and name in GRADIENTS
        if library or name == "backward":
            found.append(f"{owner}.{name}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "torch.autograd.grad(a, b)",
        "autograd.backward(a)",
        "loss.mean().backward()",
        "from torch.autograd import grad",
        "torch.func.vjp(f, x)",
        "from torch.func import grad_and_value",
    ],
)
def test_a_gradient_is_seen(source: str) -> None:
    assert gradients(source)


def test_a_part_named_grad_is_not_one() -> None:
    assert not gradients("correction.grad(grads, params)\nfrom torch.func import functional_call\nx.grad_fn(1)")


def test_there_is_exactly_one_training_gradient() -> None:
    """A hand-written kernel's own `def backward` is not a call and would not count."""
    sites = {module_of(path): gradients(path.read_text()) for path in FILES}
    assert {module: found for module, found in sites.items() if found} == {
        "fedskew.core.round": ["torch.autograd.grad"]
    }


def test_diagnostics_have_no_gradient() -> None:
    for path in below("diagnostics"):
        assert not gradients(path.read_text()), path


def test_diagnostics_never_change_training() -> None:
    """What trains does not know the probes; of them, only what makes a round on a copy calls what trains."""
    users = {module_of(path) for path in FILES if any(within(name, "fedskew.diagnostics") for name in own(path))}
    allowed = ("fedskew.diagnostics", "fedskew.cli", "fedskew.paper")
    assert {name for name in users if not within(name, *allowed)} == set()
    makers = {"fedskew.diagnostics.observing"}
    trainers = ("fedskew.engine", "fedskew.optimizers", "fedskew.corrections", "fedskew.aggregators")
    training = {"train", "absorb", "advance", "local_update", "local_step", "server_update"}
    for path in below("diagnostics"):
        if module_of(path) not in makers:
            assert not {name for name in own(path) if within(name, *trainers)}, path
            assert not calls(path.read_text()) & training, path


def test_probes_know_neither_the_store_nor_who_draws() -> None:
    stored = {"fedskew.diagnostics.observing", "fedskew.diagnostics.diagnosis"}
    for path in below("diagnostics"):
        above = ("fedskew.report", "fedskew.cli", "fedskew.paper")
        more = () if module_of(path) in stored else ("fedskew.runs.store", "fedskew.runs.results")
        assert not {name for name in own(path) if within(name, *above, *more)}, path


def calls(source: str) -> set[str]:
    """The names of everything that is called."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in called if isinstance(f, ast.Attribute | ast.Name)}


def test_a_call_is_seen() -> None:
    assert calls("engine.train(a)\nabsorb(b)\ntraining = c.train") == {"train", "absorb"}
