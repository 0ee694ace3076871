"""`fedskew methods`: every method, and which parts of FedAvg it changes."""

from fedskew.cli.document_parts import Knob
from fedskew.cli.documents import Method
from fedskew.cli.options import Json, Quiet
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import console, echo, print_json


def methods_command(json_: Json = False, quiet: Quiet = False) -> None:
    """Every method with its spec and the parts of FedAvg that it sets. Join methods with `+` if their parts differ.

    Example: fedskew methods
    """
    from fedskew.algorithms import describe

    found = describe()
    if json_:
        documents: list[Method] = [
            {"name": m.name, "spec": m.spec, "sets": list(m.sets), "about": m.about, "knobs": _knobs(m.name)}
            for m in found
        ]
        print_json(documents)
        return
    if quiet:
        for method in found:
            echo(method.name)
        return
    rows = [(method.spec, ", ".join(method.sets) or "nothing", method.about) for method in found]
    console().print(Grid.of(("method", "sets", "what it does"), rows))


def _knobs(method: str) -> dict[str, Knob]:
    """Where `fedskew tune` looks for each knob of a method."""
    from fedskew.knobs import Range, knobs_of

    ranges = {knob.name: knob.values for knob in knobs_of(method) if isinstance(knob.values, Range)}
    return {name: {"low": range.low, "high": range.high, "log": range.log} for name, range in ranges.items()}
