"""Options that take several values, for fields of a run and for arguments of methods.

Commas separate values. A spec may contain commas itself; there a comma separates values only before a known name
(`dirichlet:0.1,dirichlet:1,balance=off` are two). Repeating an option adds values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew.cli.options import divided_specs, from_toml

TAKES_ARGUMENTS = {"ignore_unknown_options": True}
"""For click: an option that is not a field is an argument of a method."""
Rest = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [--ARGUMENT VALUES]...",
        help="A TOML file with fields of the run; also arguments of methods: --tau 1,2,5.",
        show_default=False,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="An argument of a method by name: tau=1,2,5 or fedlc.tau=1,2,5; can be repeated."),
]


@dataclass(frozen=True)
class Request:
    """What a command was given: `fields` with one value, and `values` of fields and arguments with several."""

    fields: dict[str, Any]
    values: dict[str, list[Any]]


def requested(
    given: Mapping[str, Sequence[str]], rest: Sequence[str] | None, assignments: Sequence[str] | None
) -> Request:
    """The options, which override the run file. A field with one value is fixed; a list in the file is several."""
    file, arguments = _divide_rest(rest or ())
    for text in assignments or ():
        name, equals, written = text.partition("=")
        if not equals or not name:
            raise ValueError(f"--set is {text!r}; allowed: NAME=VALUES, for example tau=1,2,5")
        arguments.setdefault(name, []).append(written)
    several = {name: value if isinstance(value, list) else [value] for name, value in from_toml(file).items()}
    several |= {name: [value for text in texts for value in _values(name, text)] for name, texts in given.items()}
    fields = {name: found[0] for name, found in several.items() if len(found) == 1}
    values = {name: [value for text in texts for value in _values(name, text)] for name, texts in arguments.items()}
    values |= {name: found for name, found in several.items() if name not in fields}
    return Request(fields, {name: values[name] for name in sorted(values, key=lambda name: name != "algorithm")})


def _divide_rest(rest: Sequence[str]) -> tuple[Path | None, dict[str, list[str]]]:
    """The run file, and the values of each option that is not a field."""
    files, arguments, pieces = list[str](), dict[str, list[str]](), iter(rest)
    for piece in pieces:
        if not piece.startswith("-"):
            files.append(piece)
            continue
        name, equals, value = piece.lstrip("-").partition("=")
        value = value if equals else next(pieces, "")
        if not piece.startswith("--") or not name or not value:
            raise ValueError(f"{piece} has no values; an argument of a method is written --tau 1,2,5")
        arguments.setdefault(name.replace("-", "_"), []).append(value)
    if len(files) > 1:
        raise ValueError(f"{files[1]!r} is one file too many; a run file is {files[0]!r}")
    return Path(files[0]) if files else None, arguments


def _values(name: str, text: str) -> list[str]:
    from fedskew.runs.specs import REGISTRIES

    known = REGISTRIES.get(name)
    found = divided_specs(text, known) if known else [piece.strip() for piece in text.split(",")]
    if not all(found):
        raise ValueError(f"{name} is {text!r}, which has an empty value; allowed: values separated by commas")
    return found
