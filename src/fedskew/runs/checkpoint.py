"""The state of a run between two rounds as one safetensors file, with a checksum of its round and tensors."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.runs.store import Folder, checkpoint_facts, damaged_checkpoint

_PARTS = ("params", "buffers", "correction", "optimizer")


@dataclass(frozen=True)
class Checkpoint:
    """`clients` are those whose correction states `states` holds, in that order."""

    round: int
    server: Server
    clients: torch.Tensor
    states: Params


def save_checkpoint(folder: Folder, round: int, server: Server, clients: torch.Tensor, states: Params) -> None:
    tensors: Params = {"clients": clients, **tree.prefix(states, "states")}
    for part in (*_PARTS, "readout"):
        tensors |= tree.prefix(getattr(server, part), part)
    whole = {name: leaf.detach().cpu().contiguous() for name, leaf in tensors.items()}
    folder.write_checkpoint(save(whole, {"round": str(round), "checksum": _checksum(round, whole)}))


def load_checkpoint(
    path: Path, device: torch.device | str = "cpu", like: Server | None = None, *, diverged: bool = False
) -> Checkpoint:
    """The server's leaves are in the order of `like`, since sums over leaves depend on it and the file sorts by name.

    Numbers that are not finite are damage, unless the run is known to have `diverged`. Files of earlier versions have
    no checksum: all their numbers are checked; otherwise only the model's.
    """
    round, checksum = checkpoint_facts(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise damaged_checkpoint(path, "its tensors cannot be read") from error
    if checksum is None:
        warnings.warn(f"{path} is from a version without checksums: it cannot be verified", stacklevel=2)
    elif checksum != _checksum(round, tensors):
        raise damaged_checkpoint(path, "it was changed after it was written: its checksum does not match")
    looked_at = tensors if checksum is None else tree.unprefix(tensors, "params")
    if not (diverged or tree.finite(looked_at)):
        raise damaged_checkpoint(path, "it holds numbers that are not finite, but the run has not diverged")
    clients, states = tensors.pop("clients", None), tree.unprefix(tensors, "states")
    if clients is None or any(leaf.ndim and leaf.shape[:1] != clients.shape for leaf in states.values()):
        raise damaged_checkpoint(path, "it does not say which clients its states belong to")
    there = {name: leaf.to(device) for name, leaf in tensors.items()}
    parts = {part: _ordered(tree.unprefix(there, part), getattr(like, part, {})) for part in _PARTS}
    server = Server(**parts, readout=tree.unprefix(there, "readout"))
    if like is not None and not _fits(server, like):
        raise damaged_checkpoint(path, "its tensors are not those of this run's model")
    return Checkpoint(round, server, clients, tree.unprefix(there, "states"))


def _fits(server: Server, like: Server) -> bool:
    """Whether these are the leaves of a server before its first round; a state of the user's own may begin later."""
    begun = [part for part in _PARTS if part in ("params", "buffers") or getattr(like, part)]
    return all(_shapes(getattr(server, part)) == _shapes(getattr(like, part)) for part in begun)


def _shapes(leaves: Params) -> list[tuple[str, torch.Size]]:
    return [(name, leaf.shape) for name, leaf in leaves.items()]


def _checksum(round: int, tensors: Params) -> str:
    return tree.digest({**tensors, "round": torch.tensor(round)})


def _ordered(found: Params, like: Params) -> Params:
    return {name: found[name] for name in [*(n for n in like if n in found), *(n for n in found if n not in like)]}
