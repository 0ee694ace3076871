"""Data sets. A spec names a data set, which is loaded whole into memory, in its stored type."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from fedskew.core import spec
from fedskew.core.checks import made_of
from fedskew.core.dataset import Dataset as Dataset
from fedskew.core.memory import check_room, free_memory
from fedskew.data import cifar, digits, femnist, folder, imagenet12, mnist, nodes, npz, shapes, svhn, synthetic
from fedskew.data.images import Progress
from fedskew.data.nodes import Nodes as Nodes

GIVEN = ("seed", "clients", "data_dir", "progress")


@dataclass(frozen=True)
class Usual:
    """A data set: how it is loaded, and a run's defaults for it, where `natural` stands for its own clients.

    `mirrors` says whether the examples are images whose mirror image shows the same class; digits and letters are not.
    `files` finds the files that the data set is read from, by the arguments that choose them.
    """

    load: Callable[..., Dataset | Nodes]
    model: str
    partition: str
    mirrors: bool = False
    files: Callable[..., list[Path]] | None = None


USUAL = {
    "digits": Usual(digits.digits, "mlp", "dirichlet:0.1"),
    "shapes": Usual(shapes.shapes, "cnn:width=24,padding=1", "dirichlet:0.1", mirrors=True),
    "synthetic": Usual(synthetic.synthetic, "logistic", "natural"),
    "mnist": Usual(mnist.mnist, "mcmahan", "dirichlet:0.1", files=partial(mnist.mnist_files, "mnist")),
    "fashion_mnist": Usual(
        mnist.fashion_mnist, "mcmahan", "dirichlet:0.1", True, partial(mnist.mnist_files, "fashion_mnist")
    ),
    "cifar10": Usual(cifar.cifar10, "cnn", "dirichlet:0.1", True, partial(cifar.cifar_files, "cifar10")),
    "cifar100": Usual(cifar.cifar100, "cnn", "dirichlet:0.1", True, partial(cifar.cifar_files, "cifar100")),
    "svhn": Usual(svhn.svhn, "cnn", "dirichlet:0.1", files=svhn.svhn_files),
    "femnist": Usual(femnist.femnist, "leaf_cnn", "natural", files=femnist.femnist_files),
    "imagenet12": Usual(imagenet12.imagenet12, "resnet18", "dirichlet:0.1", True, imagenet12.imagenet12_files),
    "folder": Usual(folder.folder, "cnn", "dirichlet:0.1"),
    "npz": Usual(npz.npz, "mlp", "dirichlet:0.1"),
    "nodes": Usual(nodes.nodes, "mlp", "natural"),
}
DATASETS = {name: usual.load for name, usual in USUAL.items()}


def usual_for(text: str) -> Usual | None:
    """The defaults of the data set that a spec names; the user's own has none."""
    return USUAL.get(spec.name_in(text))


def resolve_dataset(text: str) -> spec.Resolved:
    return spec.resolve(text, "dataset", DATASETS, GIVEN)


def own_clients(text: str) -> int | None:
    """How many clients the file of a data set names: as many as `natural` has. None if it names none, or is not an
    npz."""
    resolved = resolve_dataset(text)
    return npz.count_clients(str(resolved.arguments["path"])) if resolved.factory is npz.npz else None


def load_dataset(
    text: str,
    seed: int,
    clients: int,
    data_dir: str | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Dataset:
    """The data set that a spec names, on a device. The last one is kept, so that runs of one process share it."""
    resolved = resolve_dataset(text)
    wanted = spec.parameters(resolved.factory)
    key = (seed if "seed" in wanted else 0, clients if "clients" in wanted else 0)
    asked = (text, *key, data_dir, device, resolved.file_sha256, fingerprint(resolved), source(text, data_dir))
    kept = _KEPT.get(asked)
    if kept is None:
        _KEPT.clear()  # free its memory first
        kept = _KEPT[asked] = _loaded(text, *key, data_dir, device, progress)
    return kept


_KEPT: dict[tuple[Any, ...], Dataset] = {}


def _loaded(
    text: str, seed: int, clients: int, data_dir: str | None, device: str, progress: Progress | None
) -> Dataset:
    made = resolve_dataset(text).build(seed=seed, clients=clients, data_dir=data_dir, progress=progress)
    if isinstance(made, Nodes):
        raise ValueError(
            f"{text}: only the nodes of a federation hold these examples; docs/flower.md explains how to run it"
        )
    if not isinstance(made, Dataset):
        raise ValueError(f"{text} returned {made_of(made)}; allowed: a fedskew.core.dataset.Dataset")
    if device == "cpu":
        return made
    check_room(text, made.nbytes, free_memory(torch.device(device)), device, "device=cpu may have room for it")
    return made.to(device)


def facts(text: str, seed: int, clients: int, data_dir: str | None = None, device: str = "cpu") -> Dataset | Nodes:
    """What a model must know about a data set: shape, classes and normalisation; from the spec alone if possible."""
    resolved = resolve_dataset(text)
    if resolved.factory is nodes.nodes:
        known: Nodes = resolved.build()
        return known
    return load_dataset(text, seed, clients, data_dir, device)


def fingerprint(resolved: spec.Resolved) -> str:
    """A digest of the user's own files that a spec points to and that decide the data, or nothing."""
    arguments = resolved.arguments
    if resolved.factory in (npz.npz, folder.folder):
        path = str(arguments["path"])
        return _digest(resolved.factory is npz.npz, path, _stamp(Path(path)))
    if resolved.factory is imagenet12.imagenet12 and arguments["classes"] is not None:
        return ",".join(imagenet12.read_classes(str(arguments["classes"])))
    return ""


def source(text: str, data_dir: str | None = None) -> tuple[str, str] | None:
    """Where the files of a data set are, and a digest of their names, lengths and times.

    None if there are no files, or none that could differ: what `fingerprint` reads is in a run's hash.
    """
    resolved = resolve_dataset(text)
    usual = usual_for(text)
    if usual is None or usual.files is None:
        return None
    wanted = spec.parameters(usual.files)
    try:
        files = usual.files(data_dir=data_dir, **{k: v for k, v in resolved.arguments.items() if k in wanted})
        stats = [(os.path.realpath(file), file.stat()) for file in sorted(files)]
    except (OSError, ValueError):
        return None
    facts = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats]
    place = os.path.commonpath([os.path.dirname(name) for name, _ in stats])
    return place, hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, lengths and times of a file, or of all files in a folder: while these are the same, so is the digest."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.exists()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


@lru_cache(maxsize=8)
def _digest(arrays: bool, path: str, stamp: tuple[tuple[str, int, int], ...]) -> str:
    return npz.fingerprint(path) if arrays else folder.fingerprint(path)
