"""Contestants in processes of their own that take turns: `threaded` changes how its whole process keeps memory."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager


class Worker:
    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-m", *command], stdin=pipe, stdout=pipe, text=True)
        self.processor: list[float] = []
        self.system: list[float] = []

    def __call__(self) -> None:
        """One round; notes the seconds of all cores that it took, and how many of them the system took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        user, system = map(float, self.process.stdout.readline().split())
        self.processor.append(user + system)
        self.system.append(system)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def working(commands: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Worker]]:
    """A worker for each command (a module and its arguments), all ended in the end."""
    workers = {name: Worker(command) for name, command in commands.items()}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.end()


def serve(one_round: Callable[[], object]) -> None:
    """The worker's side: a round for each line that comes in, the user's and the system's seconds as a line out."""
    for _ in sys.stdin:
        before = os.times()
        one_round()
        after = os.times()
        print(after.user - before.user, after.system - before.system, flush=True)
