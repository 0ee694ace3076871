"""A correction's state of a client between rounds, kept on the client's own node.

A node cannot know whether its answer reached the server. It therefore keeps two states, the one it trained with and the
one it made, each with the round that made it, and the server's next call says which of the two counts.
"""

from logging import WARNING
from pathlib import Path

import torch
from flwr.app import ConfigRecord, RecordDict
from flwr.supercore import log
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedskew.core import tree
from fedskew.core.files import write_whole
from fedskew.core.tree import Params
from fedskew.flower.messages import from_record, to_record

_ARRAYS, _ABOUT = "fedskew-states", "fedskew-rounds"


States = dict[int, Params]
"""By the round that made them; round 0 is the state that every client starts from."""


def state_at(states: States, round: int, like: Params) -> Params | None:
    """The state that counts according to the server; None for the one that every client starts from."""
    found = states.get(round) if like else {}
    if found is not None and not tree.unlike(found, like):
        return found
    if round:
        log(WARNING, "the correction's state of round %s is no longer on this node: it starts anew", round)
    return None


def recall(state: RecordDict, file: Path | None, device: torch.device) -> States:
    """What Flower's state of this node holds, else what the file holds."""
    if _ARRAYS in state.array_records:
        rounds = state.config_records[_ABOUT]["rounds"]
        return _split(from_record(state.array_records[_ARRAYS], device), [int(round) for round in rounds])  # type: ignore[union-attr]
    if file is not None and file.exists():
        return _read(file, device)
    return {}


def remember(state: RecordDict, file: Path | None, states: States) -> None:
    leaves: Params = {}
    for round, leaf in states.items():
        leaves |= tree.prefix(leaf, str(round))
    if not leaves:
        return
    rounds = list(states)
    state[_ARRAYS], state[_ABOUT] = to_record(leaves), ConfigRecord({"rounds": rounds})
    if file is not None:
        whole = {name: leaf.detach().cpu().contiguous() for name, leaf in leaves.items()}
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, save(whole, {"rounds": ",".join(map(str, rounds))}))
        file.chmod(0o600)  # it reveals the node's labels


def _split(leaves: Params, rounds: list[int]) -> States:
    return {round: tree.unprefix(leaves, str(round)) for round in rounds}


def _read(file: Path, device: torch.device) -> States:
    try:
        with safe_open(file, "pt", device=str(device)) as opened:
            rounds = [int(round) for round in opened.metadata()["rounds"].split(",")]
            leaves = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}); remove it, and this client starts anew") from error
    return _split(leaves, rounds)
