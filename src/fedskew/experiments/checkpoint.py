"""The state of a run between two rounds as one safetensors file."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedskew import tree
from fedskew.experiments.store import StoreError, write_whole
from fedskew.round import Server
from fedskew.tree import Params

_PARTS = ("params", "buffers", "correction", "optimizer")


@dataclass(frozen=True)
class Checkpoint:
    """`clients` are those whose correction states `states` holds, in that order."""

    round: int
    server: Server
    clients: torch.Tensor
    states: Params


def save_checkpoint(path: Path, round: int, server: Server, clients: torch.Tensor, states: Params) -> None:
    tensors: Params = {"clients": clients, **tree.prefix(states, "states")}
    for part in _PARTS:
        tensors |= tree.prefix(getattr(server, part), part)
    whole = {name: leaf.detach().cpu().contiguous() for name, leaf in tensors.items()}
    write_whole(path, save(whole, {"round": str(round)}))


def load_checkpoint(path: Path, device: torch.device | str = "cpu", like: Server | None = None) -> Checkpoint:
    """The server's leaves are in the order of `like`, since sums over leaves hang on it and the file sorts by name."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            round = int(file.metadata()["round"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        server = Server(**{part: _ordered(tree.unprefix(tensors, part), getattr(like, part, {})) for part in _PARTS})
        return Checkpoint(round, server, tensors["clients"].cpu(), tree.unprefix(tensors, "states"))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        remove = f"`fedskew runs remove {path.parent.name}` starts over"
        raise StoreError(f"the checkpoint {path} is damaged ({error}); {remove}") from error


def _ordered(found: Params, like: Params) -> Params:
    return {name: found[name] for name in [*(n for n in like if n in found), *(n for n in found if n not in like)]}
