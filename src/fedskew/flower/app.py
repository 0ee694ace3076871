"""The Flower app that `fedskew flower init` writes: the run in its configuration, and a few lines of code."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from fedskew.core import spec
from fedskew.core.modules import imported_files
from fedskew.data import facts
from fedskew.flower.rules import WORDS_FOR_NONE, Rules
from fedskew.runs.run import Run
from fedskew.runs.specs import REGISTRIES
from fedskew.simulation.plan import Plan, build_federation

_SPECS = "dataset", "partition", "model", "algorithm"
_PATHS = "path", "classes"  # arguments of data sets and partitions that may name a file

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A federation trained with fedskew"
license = "Apache-2.0"
dependencies = [] # none: fedskew is that of the environment. Flower would download what is named here, for every run

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "federation:server"
clientapp = "federation:client"

# The run, then how its server keeps it together. `flwr run -c 'algorithm="fednova" rounds=20'` overrides any of these.
[tool.flwr.app.config]
{config}
"""

_CODE = '''\
"""The run is in pyproject.toml; which client a node is, and its data, are in its --node-config; texts are quoted:

    --node-config "client-id=0 data='/path/own.npz'"        its x_train, y_train, perhaps x_test, y_test; or a folder
    --node-config "partition-id=0"                          its part of the run's data set
    --node-config "... state-dir='/path'"                   SCAFFOLD's state of it is kept there, and survives a restart
    --node-config "... device='cuda' data-dir='/path'"      where and with which files this node trains

No message contains label counts, but a server that wants to can compute them from a node's replies, with any method.
A node runs this file as the server sends it, so nothing in it protects the node from the server's operator:
docs/privacy.md of fedskew.
"""

from fedskew.flower import client_app, server_app

client = client_app()  # mods=[...] takes Flower's mods, its local differential privacy among them
server = server_app()  # evaluate=... measures the model your way, wrap=... adds central differential privacy
'''


def check_run(run: Run) -> None:
    """Refuse a run whose data set cannot be split among its clients, or whose model does not fit it, as a simulation
    does. Data that this machine lacks, or a library that the user's own data set imports, are checked where the nodes
    find them."""
    try:
        apart = spec.name_in(run.dataset) == "nodes"
        known = facts(run.dataset, run.seed, run.clients) if apart else build_federation(run).dataset
        plan = Plan.of(run, known)
        plan.check_model(plan.start(), known)
    except (FileNotFoundError, ValueError) as error:
        if not isinstance(error.__cause__ or error, FileNotFoundError | ImportError):
            raise


def keeps_states(run: Run) -> bool:
    """Whether clients of a run whose data only nodes have keep a state from round to round."""
    return bool(Plan.of(run, facts(run.dataset, run.seed, run.clients)).first_state(torch.device("cpu")))


def write_app(folder: Path, run: Run, rules: Rules) -> list[Path]:
    """A new folder with a runnable app."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} already exists and is not overwritten; choose another folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    own = _own_files(run)
    fields = run.model_dump(exclude={"engine"}) | _specs(run) | rules.model_dump()
    fields |= {key: word for key, word in WORDS_FOR_NONE.items() if fields[key] is None}
    config = "\n".join(f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in fields.items())
    texts = {"pyproject.toml": _PROJECT.format(name=name, config=config), "federation.py": _CODE}
    files = {file: text.encode() for file, text in texts.items()} | own
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return [folder / file for file in files]


def _specs(run: Run) -> dict[str, str]:
    """The run's specs in the app: the user's own files are next to federation.py, other paths are absolute."""
    parts = {field: [_in_app(part, REGISTRIES[field]) for part in _parts(run, field)] for field in _SPECS}
    return {field: "+".join(texts) for field, texts in parts.items()}


def _in_app(text: str, known: Mapping[str, Callable[..., Any]]) -> str:
    name, _, named = spec.parse(text)
    if name.endswith(".py"):
        return Path(name).name + text.removeprefix(name)
    for key in _PATHS:
        given = named.get(key)
        if isinstance(given, str) and (path := Path(given).expanduser()).exists():
            text = text.replace(f"{key}={given}", f"{key}={path.absolute()}")
    return spec.short(text, known)


def _own_files(run: Run) -> dict[str, bytes]:
    """The user's own files by their bare names, and the modules that they import by theirs."""
    found = dict[str, bytes]()
    for name in (spec.name_in(part) for field in _SPECS for part in _parts(run, field)):
        if not name.endswith(".py"):
            continue
        path = spec.own_file(name)
        for place, file in {path.name: path, **_places(imported_files(path))}.items():
            if file.name.startswith("test_") or file.name.endswith("_test.py"):
                raise ValueError(f"{name}: Flower leaves test files out of an app; choose a name without test")
            content = file.read_bytes()
            if place == "federation.py" or found.setdefault(place, content) != content:
                raise ValueError(f"{name}: the app has another {place}; rename this file")
    return found


def _places(modules: Mapping[str, Path]) -> dict[str, Path]:
    """Where modules are in the app, so that Python finds them there by the same names."""
    whole = {name: f"{name}.__init__" if file.stem == "__init__" else name for name, file in modules.items()}
    return {f"{whole[name].replace('.', '/')}{file.suffix}": file for name, file in modules.items()}


def _parts(run: Run, field: str) -> Iterator[str]:
    text: str = getattr(run, field)
    yield from text.split("+") if field == "algorithm" else [text]
