"""One of the processes of `paper run --jobs`: runs come in as lines of JSON, records and problems go out as lines.

`python -m fedskew.paper.worker STORE`. SIGTERM ends it, and so does the end of its listener; finished work is kept.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from typing import IO, Any

from fedskew.paper.execute import Problem, execute
from fedskew.runs.run import Run
from fedskew.runs.store import Store


class Stop:
    """SIGTERM, remembered: Python drops an exception that is raised inside a destructor or a callback."""

    seen = False

    def __call__(self, signum: int, frame: object) -> None:
        self.seen = True
        raise KeyboardInterrupt


def main(store: Store, stop: Stop, told: IO[str]) -> None:
    for line in sys.stdin:
        run = Run(**json.loads(line))
        for event in execute([[run]], store):
            if isinstance(event, Problem):
                _tell(told, {"problem": event.reason, "busy": event.busy})
            else:
                _, record = event
                _tell(told, {"record": record.as_dict(), "computed": record.server is not None})
            if stop.seen:
                raise KeyboardInterrupt
        _tell(told, {"end": True})


def _tell(told: IO[str], event: dict[str, Any]) -> None:
    told.write(f"{json.dumps(event)}\n")
    told.flush()


if __name__ == "__main__":
    stopping = Stop()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        signal.signal(signal.SIGTERM, stopping)
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a run prints is for the user
        main(Store(sys.argv[1]), stopping, out)
