"""How results are shown: what methods are called and judged against, and what figures are drawn for."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import typer

from fedskew.core.spec import family
from fedskew.report.style import checked_style

Names = Annotated[
    list[str] | None,
    typer.Option("--name", help='What a method is called: "fedlc=FedLC (ours)"; repeats, and orders a report\'s rows.'),
]

Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="The method that others are judged against.  [default: fedavg]"),
]


Style = Annotated[
    str,
    typer.Option(
        "--style", callback=checked_style, help="screen | paper: figures as wide as a column, 8 pt, no title, PDF."
    ),
]


def display_names(
    given: Sequence[str] | None, methods: Collection[str], written: Mapping[str, str] | None = None
) -> dict[str, str]:
    """METHOD=NAME by method; both may have equals signs of their own, so METHOD is the longest that is there. A method
    may be written as it was asked for: with its file, or with defaults; or without arguments, if only one is called so.
    `written` has the methods of some texts."""
    found, asked = dict[str, str](), written or {}
    for text in given or ():
        pieces = text.split("=")
        parts = [("=".join(pieces[:i]).strip(), "=".join(pieces[i:]).strip()) for i in range(1, len(pieces))]
        meant = [(asked.get(m) or _meant(m, methods), name) for m, name in parts if name]
        known = [(method, name) for method, name in meant if method in methods]
        if not known:
            raise ValueError(f"name is {text!r}; allowed: METHOD=NAME with one of {', '.join(sorted(methods))}")
        method, name = known[-1]
        found[method] = name
    shown = [found.get(method, method) for method in methods]
    if twice := sorted({name for name in shown if shown.count(name) > 1}):
        raise ValueError(f"two methods would be called {twice[0]!r}; allowed: different names")
    return found


def renamed(rows: Sequence[dict[str, Any]], called: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows with what their methods are to be called."""
    return [{**row, "name": called.get(row["method"], row["method"])} for row in rows]


def _meant(method: str, methods: Collection[str]) -> str:
    """One of the methods, if a text names it or is alone in having its name without arguments."""
    alike = [method] if method in methods else [each for each in methods if family(each) == method]
    return alike[0] if len(alike) == 1 else _as_listed(method)


def _as_listed(method: str) -> str:
    """A method as tables list it, or as it is if it is none."""
    from fedskew.algorithms import ALGORITHMS, resolve_algorithm
    from fedskew.core.spec import short

    try:
        return "+".join(short(part.text, ALGORITHMS) for part in resolve_algorithm(method))
    except ValueError:
        return method
