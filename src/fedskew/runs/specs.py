"""The specs in a run: what they may name, how they are written out, and the user's own files among them."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedskew.algorithms import ALGORITHMS, resolve_algorithm
from fedskew.core import spec
from fedskew.data import DATASETS, fingerprint, resolve_dataset
from fedskew.models import GIVEN, MODELS
from fedskew.partition import LETTERS, PARTITIONS
from fedskew.runs.schedules import SCHEDULES, Schedule

ALL_PARTITIONS: dict[str, Callable[..., Any]] = {**PARTITIONS, "natural": lambda: None}
REGISTRIES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "dataset": DATASETS,
    "partition": ALL_PARTITIONS,
    "model": MODELS,
    "algorithm": ALGORITHMS,
    "lr_schedule": SCHEDULES,
}
"""What the specs of a field may name."""


def _partition(text: str) -> str:
    printed = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if printed and (name := LETTERS.get(printed[1].upper(), printed[1].lower())) in ALL_PARTITIONS:
        known = ", ".join(ALL_PARTITIONS)
        raise ValueError(f"unknown partition {text!r}: did you mean {name}:{printed[2]}? known: {known}")
    resolved = spec.resolve(text, "partition", ALL_PARTITIONS)
    resolved.build()
    return _whole_path(resolved)


def _whole_path(resolved: spec.Resolved) -> str:
    """A spec whose file is found from any folder: with an absolute path, if a spec can express it."""
    given = resolved.arguments.get("path")
    if not isinstance(given, str) or not Path(given).exists():
        return resolved.text
    whole = str(Path(given).resolve())
    return resolved.text.replace(f"path={given}", f"path={whole}") if not set(whole) & set(",=") else resolved.text


def files_of(part: spec.Resolved) -> Iterator[tuple[str, str, str]]:
    """The user's own files that a spec names: the argument that does, nothing for the file that the spec begins with;
    the path there; and a digest of the file."""
    if part.file_sha256:
        yield "", spec.name_in(part.text), part.file_sha256
    if digest := fingerprint(part):
        argument = "path" if part.arguments.get("path") else "classes"
        yield argument, str(part.arguments[argument]), digest
    if part.factory is PARTITIONS["replay"]:
        yield "path", str(part.arguments["path"]), part.build().fingerprint()


def by_content(part: spec.Resolved) -> str:
    """A spec with digests in place of the paths of files."""
    head, colon, rest = part.text.partition(":")
    arguments = rest.split(",")
    for name, path, digest in files_of(part):
        if name:
            arguments = [f"{name}={digest}" if given == f"{name}={path}" else given for given in arguments]
        else:
            head = digest
    return f"{head}{colon}{','.join(arguments)}"


def by_name(text: str) -> str:
    """A short spec with only the last part of a path."""
    kind, colon, rest = text.partition(":")
    return f"{kind}:{rest.rpartition('/')[2]}" if colon and kind in ("npz", "folder", "replay") else text


@lru_cache
def built_schedule(text: str, rounds: int) -> Schedule:
    schedule: Schedule = spec.resolve(text, "lr_schedule", SCHEDULES, ("rounds",)).build(rounds=rounds)
    return schedule


WRITTEN_OUT: dict[str, Callable[[str], str]] = {
    "dataset": lambda text: _whole_path(resolve_dataset(text)),
    "partition": _partition,
    "model": lambda text: spec.resolve(text, "model", MODELS, GIVEN).text,
    "algorithm": lambda text: "+".join(part.text for part in resolve_algorithm(text)),
    "lr_schedule": lambda text: spec.resolve(text, "lr_schedule", SCHEDULES, ("rounds",)).text,
}
"""Specs with every argument written out. A run builds its method and its schedule, which checks these arguments."""
