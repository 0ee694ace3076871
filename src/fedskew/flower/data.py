"""What a node trains on: its part of the run's data set, or its own file or folder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedskew.core.federation import Federation
from fedskew.data import Dataset, Nodes, facts
from fedskew.data.images import image_dataset, images_in
from fedskew.data.npz import Array, own_examples, own_tests
from fedskew.runs.run import Run
from fedskew.simulation.plan import build_federation, usable_device

_NUMBER = "client-id", "partition-id"
_HERE = "device", "data-dir"
_OWN = "an .npz file or a folder of images"


@dataclass(frozen=True)
class Node:
    """A client of the run, by number, and the federation as far as this node can see it. `tests` are its own test
    examples; None if the server has some."""

    client: int
    federation: Federation
    tests: int | None = None

    @property
    def examples(self) -> int:
        return int(self.federation.sizes(np.array([self.client]))[0])

    def check_asked(self, client: int) -> None:
        """Check that the server means this node."""
        if client != self.client:
            raise ValueError(f"this node is client {self.client}, the server asked client {client}")


def run_here(run: Run, config: Mapping[str, Any]) -> Run:
    """The run with the node-config's settings for this machine; they do not change the run's identity."""
    return run.model_copy(update={key.replace("-", "_"): str(config[key]) for key in _HERE if key in config})


def client_number(run: Run, config: Mapping[str, Any]) -> int:
    """Which of the run's clients a node is."""
    given = next((config[key] for key in _NUMBER if key in config), None)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < run.clients:
        raise ValueError(f"node-config: client-id is {given!r}; allowed: a number from 0 to {run.clients - 1}")
    return given


def load_node(run: Run, config: Mapping[str, Any]) -> Node:
    """The client a node-config describes, with its examples."""
    client, own = client_number(run, config), config.get("data")
    if own is not None:
        path = Path(str(own)).expanduser()
        if not path.exists():
            raise ValueError(f"node-config: data is {str(own)!r}, which is not there; allowed: {_OWN}")
        known = facts(run.dataset, run.seed, run.clients, run.data_dir)
        data, tests = _from_folder(path, known) if path.is_dir() else _from_file(path, known)
        federation = Federation.of_one(data.to(usable_device(run.device)), client, run.clients)
        return Node(client, federation, tests if isinstance(known, Nodes) else None)
    if run.dataset.startswith("nodes:"):
        raise ValueError(f"node-config: data is missing; allowed: {_OWN}, with the data of client {client}")
    return Node(client, _federation(run))


@lru_cache(maxsize=1)
def _federation(run: Run) -> Federation:
    """In a simulation, one process may answer for several clients, one after the other."""
    return build_federation(run)


def _from_file(path: Path, known: Dataset | Nodes) -> tuple[Dataset, int]:
    """The examples of a file, and how many are for testing."""
    x, y = own_examples(str(path))
    _check_alike(path, x, known)
    about = {"mean": known.mean, "std": known.std, "class_names": known.class_names}
    tests = own_tests(str(path)) if isinstance(known, Nodes) else None
    if tests is not None:
        _check_alike(path, tests[0], known)
    stand_in = x[:1], y[:1]
    return Dataset.of(str(path), (x, y), tests or stand_in, known.num_classes, **about), len(tests[1]) if tests else 0


def _check_alike(path: Path, x: Array, known: Dataset | Nodes) -> None:
    if x.shape[1:] != known.input_shape:
        raise ValueError(f"{path}: examples have shape {list(x.shape[1:])}; allowed: {list(known.input_shape)}")
    bytes_wanted = known.mean is not None if isinstance(known, Nodes) else known.x_train.dtype == torch.uint8
    if (x.dtype == np.uint8) != bytes_wanted:
        kind = "bytes (uint8), which the run normalises" if bytes_wanted else "real numbers, as in the run"
        raise ValueError(f"{path}: examples are {x.dtype}; allowed: {kind}")


def _from_folder(path: Path, known: Dataset | Nodes) -> tuple[Dataset, int]:
    """Images in PATH/<class>/, or in PATH/train/<class>/ and PATH/test/<class>/, and how many are for testing; <class>
    is the class name, or its number if classes have no names."""
    names = known.class_names or tuple(str(number) for number in range(known.num_classes))
    split, tests = "train" not in names and (path / "train").is_dir(), list[list[Path]]()
    files = _by_class(path / "train" if split else path, names)
    if split and (path / "test").is_dir() and isinstance(known, Nodes):
        tests = _by_class(path / "test", names)
    stand_in = [members[:1] for members in files]
    made = image_dataset(str(path), path, files, tests or stand_in, names, known.input_shape[-1])
    if made.input_shape != known.input_shape:
        raise ValueError(f"{path}: images have shape {list(made.input_shape)}; allowed: {list(known.input_shape)}")
    return replace(made, mean=known.mean, std=known.std), sum(map(len, tests))


def _by_class(path: Path, names: tuple[str, ...]) -> list[list[Path]]:
    present = sorted(child.name for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    strange = [name for name in present if name not in names]
    if strange or not present:
        shown = ", ".join(names[:12])
        raise ValueError(f"{path} has the folders {strange or present}; allowed: classes {shown}")
    return [images_in(path / name) if name in present else [] for name in names]
