"""The requested part of a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedskew.core import spec
from fedskew.paper.profiles import PROFILES, Profile
from fedskew.runs.run import check_seeds

STAND_IN = "digits"
"""The data set that ships with the package and stands in for any other."""


@dataclass(frozen=True)
class Choice:
    """Empty `cells` or `methods` mean all; `rounds` shortens; `fields` set where and how to run (device, precision);
    `target` is the accuracy that rounds are counted to, FedAvg's end if it is None.

    With `stand_in` every cell uses small data that ship with the package, to try a command.
    """

    cells: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: int = 5
    rounds: int | None = None
    profile: Profile = PROFILES["stated"]
    fields: Mapping[str, Any] = field(default_factory=dict)
    stand_in: bool = False
    target: float | None = None

    def __post_init__(self) -> None:
        check_seeds(self.seeds)
        if self.rounds is not None and self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; allowed: 1 or more")


def standing_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same federation on handwritten digits, with a small model and at most ten clients."""
    partition = fields.get("partition", "dirichlet:0.5")
    small = {"dataset": STAND_IN, "model": "mlp", "clients": min(10, fields["clients"]), "partition": partition}
    return {**fields, **small}


def chosen(kind: str, wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    """The requested names, in their own order; all if none is named. A data set stands for all its cells."""
    known = list(there)
    wanted = [name for text in wanted for name in _several(text, known)]
    for name in wanted:
        if not any(_named(cell, name) for cell in known):
            raise ValueError(spec.unknown(kind, name, dict.fromkeys(known)))
    return [cell for cell in known if not wanted or any(_named(cell, name) for name in wanted)]


def _several(text: str, known: Sequence[str]) -> list[str]:
    """A name, or several separated by commas; some names contain a comma."""
    whole = any(_named(cell, text) for cell in known)
    return [text] if whole else [name.strip() for name in text.split(",") if name.strip()]


def _named(cell: str, name: str) -> bool:
    return cell == name or cell.startswith(f"{name}/")
