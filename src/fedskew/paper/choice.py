"""The requested part of a table."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from fedskew.core import spec
from fedskew.core.checks import check_number
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
        if self.rounds is not None:
            check_number("rounds", self.rounds, 1)


def standing_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same federation on handwritten digits, with a small model and at most ten clients."""
    partition = fields.get("partition", "dirichlet:0.5")
    small = {"dataset": STAND_IN, "model": "mlp", "clients": min(10, fields["clients"]), "partition": partition}
    return {**fields, **small}


def chosen(kind: str, wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    """The requested names, in their own order; all if none is named. A part of a cell's name stands for all cells that
    have it."""
    names = {one: _parts(one) if kind == "cell" else {one} for one in there}
    known = set[str]().union(*names.values())
    asked = [name for text in wanted for name in _several(text, known)]
    for name in asked:
        if name not in known:
            raise ValueError(spec.unknown(kind, name, dict.fromkeys(names)))
    return [one for one, called in names.items() if not asked or not called.isdisjoint(asked)]


def _parts(cell: str) -> set[str]:
    """A cell's name and its parts, with and without arguments: `svhn`, `E=5/svhn`, `shards` for `E=5/svhn/shards:5`."""
    found = set[str]()
    for text in (cell, "/".join(part.partition(":")[0] for part in cell.split("/"))):
        parts = text.split("/")
        found |= {"/".join(parts[i:j]) for i, j in combinations(range(len(parts) + 1), 2)}
    return found


def _several(text: str, known: Collection[str]) -> Iterator[str]:
    """Names separated by commas. Some contain commas themselves: the longest known name counts."""
    pieces = [piece.strip() for piece in text.split(",")]
    while pieces:
        length = next((n for n in range(len(pieces), 1, -1) if ",".join(pieces[:n]) in known), 1)
        if name := ",".join(pieces[:length]):
            yield name
        pieces = pieces[length:]
