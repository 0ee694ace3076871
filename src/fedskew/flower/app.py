"""A Flower app to start from, as `fedskew flower init` writes it: the run in its configuration, a few lines of code."""

import json
import re
from pathlib import Path

from fedskew.experiments.run import Run
from fedskew.flower.settings import Rules

_NOT_WRITTEN = {"engine", "device", "data_dir"}  # of a machine, not of a federation: node-config has them

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A federation trained with fedskew"
license = "Apache-2.0"
dependencies = ["fedskew[flower]"]

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
"""The run is in pyproject.toml; which client a node is, and its data, are in the node's --node-config:

    client-id=0 data=/path/own.npz      x_train and y_train of its own, or a folder <class>/*.png
    partition-id=0                      its part of the run's data set
    state-dir=/path                     SCAFFOLD's state of this client is kept there, and survives a restart
    device=cuda data-dir=/path          where and with which files this node trains

Label counts never leave a node.
"""

from fedskew.flower import client_app, server_app

client = client_app()  # mods=[...] takes Flower's mods, its local differential privacy among them
server = server_app()  # evaluate=... measures the model your way, wrap=... adds central differential privacy
'''


def write_app(folder: Path, run: Run, rules: Rules) -> list[Path]:
    """A new folder with a runnable app."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there already; nothing is written over, name another folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    fields = run.model_dump(exclude=_NOT_WRITTEN, exclude_none=True) | run.short | rules.model_dump()
    config = "\n".join(f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in fields.items())
    folder.mkdir(parents=True, exist_ok=True)
    files = {"pyproject.toml": _PROJECT.format(name=name, config=config), "federation.py": _CODE}
    for file, text in files.items():
        (folder / file).write_text(text)
    return [folder / file for file in files]
