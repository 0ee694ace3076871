"""The cohort split over processes of `torch.distributed`, as torchrun starts them: gloo on CPUs, nccl on GPUs.

Every rank holds the federation and the same global model and trains its part of each cohort with the ordinary engine;
one all-reduce of the round's sums gives every rank the next model. A client's batches depend only on the run, the round
and the client, so results equal those of one process up to the order in which sums are added. Only rank 0 evaluates and
has the store; it sends the others what it finds, so all of them yield the same records.
"""

import atexit
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fedskew.core import tree
from fedskew.core.federation import Ints
from fedskew.core.ranks import expected, machine_share, on_machine
from fedskew.core.round import Sums
from fedskew.core.tree import Params
from fedskew.engine.timetable import longest_first

_PATIENCE = timedelta(minutes=30)
Made = TypeVar("Made")


class RankLost(RuntimeError):
    """A process that shares the work cannot continue or no longer answers."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the work; alone if no others were started."""

    rank: int = 0
    size: int = 1

    def my_part(self, steps: Ints) -> Ints:
        """Positions of this rank's share of clients with these numbers of steps; all shares have nearly the same number
        of steps.

        The longest come first, each goes to the rank that has least; every rank computes the same answer.
        """
        owner, load = np.zeros(len(steps), np.int64), np.zeros(self.size, np.int64)
        for position in longest_first(steps):
            owner[position] = load.argmin()
            load[owner[position]] += steps[position]
        return np.flatnonzero(owner == self.rank)

    def add(self, sums: Sums) -> Sums:
        """The sums over all ranks: one all-reduce, in the type of the parameters."""
        if self.size == 1:
            return sums
        trees = (
            sums.delta,
            sums.buffers,
            sums.message,
            {"travel": sums.travel, "loss": sums.loss, "square": sums.square},
        )
        leaves = [leaf for part in trees for leaf in part.values()]
        flat = torch.cat([leaf.flatten().to(leaves[0].dtype) for leaf in leaves])
        _together(dist.all_reduce, flat)
        parts = iter(flat.split([leaf.numel() for leaf in leaves]))
        delta, buffers, message, last = (tree.map(lambda leaf: next(parts).view_as(leaf).to(leaf), a) for a in trees)
        return Sums(delta, buffers, message, **last)

    def all_can(self, work: Callable[[], Made]) -> Made:
        """The result of this rank, if every rank succeeds; an error on one is an error on all."""
        if self.size == 1:
            return work()
        failed: Exception | None = None
        try:
            made = work()
        except Exception as error:
            failed = error
        failures = torch.tensor([int(failed is not None)])
        _together(dist.all_reduce, failures)
        if failed is not None:
            if int(failures) < self.size:  # if all ranks failed, rank 0 reports it; if some did, each of them does
                raise RuntimeError(str(failed) or type(failed).__name__) from failed
            raise failed
        if int(failures):
            raise RankLost("another rank cannot continue; its own message says why")
        return made

    def check_same(self, number: int, what: str) -> None:
        """Raise an error if ranks have different numbers."""
        if self.size == 1:
            return
        both = torch.tensor([number, -number])
        _together(dist.all_reduce, both, op=dist.ReduceOp.MAX)
        if int(both[0]) != -int(both[1]):
            raise ValueError(f"ranks have different {what}; all of them need the same")

    def broadcast(self, value: Any) -> Any:
        """A JSON value from rank 0."""
        return json.loads(self._spread(json.dumps(value).encode())) if self.size > 1 else value

    @contextmanager
    def shared_copy(self, path: Path | None) -> Iterator[Path | None]:
        """A file of rank 0, or a copy of it; None if there is none."""
        there = path is not None and path.exists()
        if not self.broadcast(there):
            yield None
            return
        content = self._spread(path.read_bytes() if path is not None else b"") if self.size > 1 else b""
        if not self.rank:
            yield path
            return
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            copy.write_bytes(content)
            yield copy

    def _spread(self, content: bytes) -> bytes:
        """Bytes from rank 0."""
        length = torch.tensor([len(content)])
        _together(dist.broadcast, length, 0)
        shared = torch.zeros(int(length), dtype=torch.uint8)
        if not self.rank:
            shared = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        _together(dist.broadcast, shared, 0)
        return shared.numpy().tobytes()

    def collected(self, clients: Tensor, states: Params) -> tuple[Tensor, Params]:
        """The clients of all ranks and their states, on rank 0 in main memory; the others keep what they have."""
        own = [leaf.cpu().contiguous() for leaf in (clients, *states.values())]
        if self.rank:
            for leaf in (torch.tensor([len(clients)]), *own):
                _together(dist.send, leaf, 0)
            return clients, states
        everyone = [own, *(list(self._from(rank, own)) for rank in range(1, self.size))]
        ids, *leaves = (torch.cat(parts) for parts in zip(*everyone, strict=True))
        return ids, dict(zip(states, leaves, strict=True))

    def _from(self, rank: int, like: list[Tensor]) -> Iterator[Tensor]:
        count = torch.zeros(1, dtype=torch.int64)
        _together(dist.recv, count, rank)
        for leaf in like:
            theirs = leaf.new_empty(int(count), *leaf.shape[1:])
            _together(dist.recv, theirs, rank)
            yield theirs


def place(device: torch.device) -> torch.device:
    """This rank's own GPU, if the device is "cuda" and several ranks were started."""
    if expected() == 1 or device.type != "cuda":
        return device
    if device.index is not None and machine_share() > 1:
        raise ValueError(f"device is {str(device)!r} on {machine_share()} ranks of this machine; allowed: cuda, cpu")
    here, there = on_machine() if device.index is None else device.index, torch.cuda.device_count()
    if here >= there:
        raise ValueError(f"rank {here} of this machine has no GPU: there are {there}; start that many ranks")
    return torch.device("cuda", here)


def join_ranks(device: torch.device) -> Ranks:
    """This process and the others, once all of them have joined."""
    if expected() == 1:
        return Ranks()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        _together(dist.init_process_group, backend, timeout=_PATIENCE)
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _together(call: Callable[..., object], *arguments: object, **named: object) -> None:
    """Explain a failed collective operation of the ranks."""
    try:
        call(*arguments, **named)
    except RuntimeError as error:
        raise RankLost(
            "another rank is gone or does not answer; if it failed, its own message says why; "
            "if it was killed, the same command resumes"
        ) from error
