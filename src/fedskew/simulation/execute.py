"""Groups of runs, one group after another; failures are reported and the rest continues."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from fedskew.runs.run import Run
from fedskew.runs.store import Store, StoreBusy, StoreError
from fedskew.simulation.records import RoundRecord
from fedskew.simulation.session import simulate_many


@dataclass(frozen=True)
class Problem:
    """A group of runs that was not done, and why; `busy` if another process is doing it, `died` if the one that did it
    has died."""

    runs: tuple[Run, ...]
    reason: str
    busy: bool = False
    died: bool = False


Event = tuple[Run, RoundRecord] | Problem


def execute(groups: Sequence[Sequence[Run]], store: Store) -> Generator[Event, None, None]:
    """Every record of every run, or the problem that a group had."""
    for group in groups:
        try:
            for position, record in simulate_many(group, store=store):
                yield group[position], record
        except StoreBusy as error:
            yield Problem(tuple(group), str(error), busy=True)
        except (ValueError, OSError, StoreError, RuntimeError) as error:
            yield Problem(tuple(group), str(error) or type(error).__name__)
