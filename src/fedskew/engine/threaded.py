"""Clients on threads, one processor core each: for convolutional networks on a CPU.

Within a client only one core works, so nothing waits at the end of every operation; convolutions run in PyTorch's
channels-last layout, which its CPU kernels prefer.
"""

import ctypes
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.client import undrawn_update
from fedskew.core.federation import Cohort
from fedskew.core.pulse import meter
from fedskew.core.ranks import machine_share, own_cores
from fedskew.core.round import Recipe, Server, Update, join
from fedskew.core.settings import Settings, kernels_of


@dataclass
class Threaded:
    settings: Settings
    _own: threading.local = field(default_factory=threading.local, repr=False)
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients; the largest clients begin first."""
        if not recipe.model.quiet:
            raise ValueError("threaded cannot run a module that may draw its own random numbers; use engine=serial")
        if self._pool is None:
            keep_memory()
            self._pool = ThreadPoolExecutor(cores(), "fedskew")
        servers = [replace(server, params=tree.map(_channels_last, server.params)) for server in servers]
        jobs = [(i, k) for i, cohort in enumerate(cohorts) for k in range(len(cohort.clients))]
        size = [cohort.federation.sizes(cohort.clients) for cohort in cohorts]
        jobs.sort(key=lambda job: -int(size[job[0]][job[1]]))
        with kernels_of(self.settings.precision):  # set once around all threads, which would restore them in any order
            work = partial(self._client, recipe, round)
            started = {(i, k): self._pool.submit(work, servers[i], cohorts[i], k) for i, k in jobs}
            tick = meter(len(jobs))
            for future in started.values():
                future.add_done_callback(lambda _: tick())
            try:
                return [
                    join([started[i, k].result() for k in range(len(cohort.clients))], new_axis=True)
                    for i, cohort in enumerate(cohorts)
                ]
            finally:
                for future in started.values():
                    future.cancel()  # after an interruption nobody waits for the rest of the round
                wait(started.values())

    def _client(self, recipe: Recipe, round: int, server: Server, cohort: Cohort, k: int) -> Update:
        """One client on this thread, with the thread's own module: a functional call borrows the module."""
        if getattr(self._own, "source", None) is not recipe.model:
            torch.set_num_threads(1)  # of this thread
            self._own.source, self._own.model = recipe.model, recipe.model.copy()
        mine = replace(recipe, model=self._own.model)
        return undrawn_update(mine, self.settings, server, cohort, k, round)


_KEEP = {-4: 0, -1: 1 << 30, -2: 1 << 26}  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_memory() -> None:
    """Make glibc keep freed memory, for the whole process; elsewhere do nothing.

    By default it returns large activations to the system, which clears them again page by page, at every step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in _KEEP.items():
        mallopt(option, value)


def cores() -> int:
    """How many cores this process may use, given other ranks on the machine."""
    return max(1, own_cores() // machine_share())


def _channels_last(leaf: Tensor) -> Tensor:
    return leaf.contiguous(memory_format=torch.channels_last) if leaf.ndim == 4 else leaf
