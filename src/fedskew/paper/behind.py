"""The runs behind a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.paper.formats import settings_of
from fedskew.paper.table import answer
from fedskew.runs.results import Results


def behind(rows: Sequence[Mapping[str, Any]], results: Results) -> list[str]:
    """How the runs of a figure's rows were done, which runs they are, and where a model was measured afterwards."""
    shown = {(name, row.get("rounds")) for row in rows for name in row.get("hashes") or [row.get("hash")]}
    found = [answer([result], result.rounds) for result in results if (result.hash, result.rounds) in shown]
    known = [ours for ours in found if ours is not None]
    if not known:
        return []
    names = ", ".join(f"{ours['hashes'][0]} (partition {ours['partitions'][0]})" for ours in known)
    devices = dict.fromkeys(row["measured_on"] for row in rows if row.get("measured_on"))
    looked = [f"Local updates of that model were measured on {device}." for device in devices]
    return [*settings_of(known), f"Runs: {names}.", *looked]
