"""Whether a run fits into memory, estimated before its first round from the least that it needs."""

from dataclasses import dataclass
from pathlib import Path

import torch

from fedskew.core.ranks import machine_share

_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Need:
    """Bytes that one seed needs beyond what it already holds, without activations and PyTorch's own needs.

    `work` is for a round, `states` for what clients remember between rounds, `data` for what another seed has to load.
    """

    work: int
    states: int
    data: int = 0

    def of(self, seeds: int) -> int:
        """Several seeds together. Data that seeds do not share are held twice: per seed, and all in one tensor."""
        return seeds * (self.work + self.states) + (2 * seeds - 1) * self.data * (seeds > 1)


def update_bytes(model: int, correction: int) -> int:
    """A client's update while updates are stacked: delta, buffers, state and message, both separate and joined."""
    return 2 * (model + 2 * correction)


def stacked_bytes(model: int, correction: int, optimizer: int, batch: int) -> int:
    """A client of a cohort that runs as one tensor program: parameters and gradients, states, and a batch."""
    return max(update_bytes(model, correction), 2 * model + correction + optimizer + batch)


def clients_seen(clients: int, per_round: float, rounds: int) -> int:
    """How many different clients are sampled, on average."""
    return round(clients * (1 - (1 - per_round / clients) ** rounds))


def free_memory(device: torch.device) -> int | None:
    """Free bytes for this process, given other ranks on the machine; None if the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if not _MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0]) // machine_share() if "MemAvailable" in lines else None


def seeds_together(need: Need, free: int | None, seeds: int) -> int:
    """How many of several seeds fit together; one is always tried."""
    if free is None:
        return seeds
    return next((n for n in range(seeds, 1, -1) if need.of(n) <= free), 1)


def check_room(what: str, needed: int, free: int | None, device: torch.device | str, remedy: str) -> None:
    """Raise an error if it cannot fit."""
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs at least {_size(needed)}, but only {_size(free)} are free on {device}; {remedy}"
        )


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
