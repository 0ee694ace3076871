"""`fedskew methods`: every method, and which parts of FedAvg it changes."""

from typing import Any

from fedskew.cli.options import Json, Quiet
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, echo, print_json


def methods_command(json_: Json = False, quiet: Quiet = False) -> None:
    """Every method with its spec and the parts of FedAvg that it sets. Join methods with `+` if their parts differ.

    Example: fedskew methods
    """
    from dataclasses import asdict

    from fedskew.algorithms import describe

    found = describe()
    if json_:
        print_json([{**asdict(method), "knobs": _knobs(method.name)} for method in found])
        return
    if quiet:
        for method in found:
            echo(method.name)
        return
    grid = Grid("method", "sets", "what it does")
    for method in found:
        grid.add_row(method.spec, ", ".join(method.sets) or "nothing", method.about)
    console().print(grid)


def _knobs(method: str) -> dict[str, dict[str, Any]]:
    """Where `fedskew tune` looks for each knob of a method."""
    from dataclasses import asdict

    from fedskew.knobs import Range, knobs_of

    ranges = {knob.name: knob.values for knob in knobs_of(method) if isinstance(knob.values, Range)}
    return {name: {key: asdict(values)[key] for key in ("low", "high", "log")} for name, values in ranges.items()}
