"""A table as text: CSV, Markdown, LaTeX."""

import csv
import io
from collections.abc import Sequence


def as_csv(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """None is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return out.getvalue()


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines."""
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (heads, *rows))
    return [head, "|" + " --- |" * len(heads), *body]


def as_latex(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines for booktabs."""
    return tabular(heads, [[tex(cell) for cell in row] for row in rows])


def tabular(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The same of rows that are LaTeX already."""
    lines = [f"\\begin{{tabular}}{{l{'c' * (len(heads) - 1)}}}", "\\toprule"]
    lines += [_line(list(map(tex, heads))), "\\midrule", *map(_line, rows)]
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _line(cells: Sequence[str]) -> str:
    """A star or a bracket at its beginning would be an argument of the command before it."""
    guard = "{}" if cells[0].startswith(("*", "[")) else ""
    return guard + " & ".join(cells) + " \\\\"


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "_": r"\_",
        "%": r"\%",
        "&": r"\&",
        "#": r"\#",
        "^": r"\^{}",
        "~": r"\~{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "−": "$-$",
    }
)


def tex(text: str) -> str:
    """Text as LaTeX prints it."""
    return text.translate(_TEX)
