"""The cohort split over processes of `torch.distributed`, as torchrun starts them: gloo on CPUs, nccl on GPUs.

Every rank holds the federation and the same global model and trains its part of each cohort with the ordinary engine;
one all-reduce of the round's sums gives every rank the next model. A client's batches hang on nothing but the run, the
round and the client, so results are those of one process up to the order in which sums are added.
Rank 0 alone evaluates and has the store.
"""

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fedskew import tree
from fedskew.federation import Ints
from fedskew.ranks import expected, on_machine
from fedskew.round import Sums
from fedskew.tree import Params

_PATIENCE = timedelta(minutes=30)


class RankLost(RuntimeError):
    """A process that shares the work does not answer any more."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the work; by itself where no others were started."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    def mine(self, steps: Ints) -> Ints:
        """Positions of this rank's part of clients with so many steps, all parts of nearly the same number of steps.

        Longest first, each to the rank that has least; all ranks come to the same answer by themselves.
        """
        owner, load = np.zeros(len(steps), np.int64), np.zeros(self.size, np.int64)
        for position in np.argsort(-steps, kind="stable"):
            owner[position] = load.argmin()
            load[owner[position]] += steps[position]
        return np.flatnonzero(owner == self.rank)

    def add(self, sums: Sums) -> Sums:
        """The sums over all ranks: one all-reduce, in the type of the parameters."""
        if self.size == 1:
            return sums
        trees = sums.delta, sums.buffers, sums.message, {"loss": sums.loss}
        leaves = [leaf for part in trees for leaf in part.values()]
        flat = torch.cat([leaf.flatten().to(leaves[0].dtype) for leaf in leaves])
        _together(dist.all_reduce, flat)
        parts = iter(flat.split([leaf.numel() for leaf in leaves]))
        delta, buffers, message, last = (tree.map(lambda leaf: next(parts).view_as(leaf).to(leaf), a) for a in trees)
        return Sums(delta, buffers, message, last["loss"])

    def told(self, number: int) -> int:
        """A number that rank 0 knows."""
        if self.size == 1:
            return number
        shared = torch.tensor([number], device=self.device)
        _together(dist.broadcast, shared, 0)
        return int(shared)

    @contextmanager
    def handed_out(self, path: Path | None) -> Iterator[Path | None]:
        """A file that rank 0 has, or a copy of it; None if there is none."""
        there = path is not None and path.exists()
        length = self.told(path.stat().st_size if path is not None and there else 0)
        if self.size == 1 or not length:
            yield path if there else None
            return
        content = path.read_bytes() if path is not None else bytes(length)
        shared = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        _together(dist.broadcast, shared, 0)
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            copy.write_bytes(shared.cpu().numpy().tobytes())
            yield copy

    def collected(self, clients: Tensor, states: Params) -> tuple[Tensor, Params]:
        """The clients of all ranks and their states, on rank 0; the others keep what they have."""
        if self.size == 1:
            return clients, states
        own = [clients.to(self.device), *states.values()]
        if self.rank:
            _together(dist.send, torch.tensor([len(clients)], device=self.device), 0)
            for leaf in own:
                _together(dist.send, leaf.contiguous(), 0)
            return clients, states
        everyone = [own, *(list(self._from(rank, own)) for rank in range(1, self.size))]
        ids, *leaves = (torch.cat(parts) for parts in zip(*everyone, strict=True))
        return ids.cpu(), dict(zip(states, leaves, strict=True))

    def _from(self, rank: int, like: list[Tensor]) -> Iterator[Tensor]:
        count = torch.zeros(1, dtype=torch.int64, device=self.device)
        _together(dist.recv, count, rank)
        for leaf in like:
            theirs = leaf.new_empty(int(count), *leaf.shape[1:])
            _together(dist.recv, theirs, rank)
            yield theirs


def place(device: torch.device) -> torch.device:
    """This rank's own GPU, where "cuda" was asked for and several ranks share a machine."""
    if expected() == 1 or device.type != "cuda" or device.index is not None:
        return device
    here, there = on_machine(), torch.cuda.device_count()
    if here >= there:
        raise ValueError(f"rank {here} of this machine has no GPU of its own, {there} are here; start that many ranks")
    return torch.device("cuda", here)


def meet(device: torch.device) -> Ranks:
    """This process and the others, once all of them are there."""
    if expected() == 1:
        return Ranks()
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "nccl" if device.type == "cuda" else "gloo"
        _together(dist.init_process_group, backend, timeout=_PATIENCE)
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


def _together(call: Callable[..., object], *arguments: object, **named: object) -> None:
    """Something that ranks do with one another."""
    try:
        call(*arguments, **named)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RankLost(f"another rank is gone or does not answer; the same command goes on ({reason})") from error
