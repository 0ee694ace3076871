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
    lines += [" & ".join(map(tex, heads)) + " \\\\", "\\midrule", *(" & ".join(row) + " \\\\" for row in rows)]
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def tex(text: str) -> str:
    """Text as LaTeX prints it."""
    for plain, escaped in (
        ("\\", r"\textbackslash "),
        ("{", r"\{"),
        ("}", r"\}"),
        ("$", r"\$"),
        ("_", r"\_"),
        ("%", r"\%"),
        ("&", r"\&"),
        ("#", r"\#"),
        ("^", r"\^{}"),
        ("~", r"\~{}"),
        ("±", r"$\pm$"),
        ("−", "$-$"),
    ):
        text = text.replace(plain, escaped)
    return text
