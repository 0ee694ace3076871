"""Tables of the paper, ours beside the printed figure: Markdown, LaTeX, CSV. Rows come from `experiments.paper`."""

import csv
import io
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

COLUMNS = (
    "cell", "method", "printed_mean", "printed_std", "ours_mean", "ours_std", "difference", "seeds", "rounds",
    "shortened", "diverged", "algorithm", "model", "local_epochs", "momentum", "lr", "batch_size", "clients",
    "precision", "device", "balanced", "last_ten", "partitions", "hashes",
)  # fmt: skip


def grid(rows: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Row]]:
    """Methods, cells, and the row of each pair; cells nobody has run are left out when some have been."""
    ran = [row for row in rows if row["ours"]] or list(rows)
    cells = list(dict.fromkeys(row["cell"] for row in ran))
    methods = list(dict.fromkeys(row["method"] for row in ran))
    return methods, cells, {(row["method"], row["cell"]): row for row in rows}


def ours_text(row: Row) -> str:
    """`57.34 ± 0.21`; a shortened run carries its rounds, a diverged seed the round it ended in."""
    ours = row["ours"]
    if ours is None:
        return "-"
    text = "diverged" if ours["mean"] is None else f"{ours['mean']:.2f}"
    if ours["std"] is not None:
        text += f" ± {ours['std']:.2f}"
    if ours["shortened"]:
        text += f" [{ours['rounds']} rounds]"
    if ours["diverged"]:
        text += f" ({len(ours['diverged'])} diverged, round {min(ours['diverged'].values())})"
    return text


def printed_text(row: Row) -> str:
    mean, std = row["printed"]["mean"], row["printed"]["std"]
    return "-" if mean is None else f"{mean:.2f}" + (f" ± {std:.2f}" if std is not None else "")


def cell_text(row: Row) -> str:
    printed = row["printed"]["mean"]
    return ours_text(row) + ("" if printed is None or row["ours"] is None else f" ({printed:.2f})")


def markdown(rows: Sequence[Row]) -> str:
    """Methods down, cells across, the printed figure in brackets; then what ours rests on."""
    methods, cells, at = grid(rows)
    lines = ["| method | " + " | ".join(cells) + " |", "|" + " --- |" * (1 + len(cells))]
    for method in methods:
        shown = [cell_text(at[method, cell]) if (method, cell) in at else "-" for cell in cells]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *rests_on(rows)]) + "\n"


def rests_on(rows: Sequence[Row]) -> list[str]:
    """Settings, length, seeds, arithmetic and device of the runs shown, and what is set aside."""
    found = [row["ours"] for row in rows if row["ours"]]
    if not found:
        return ["Nothing of this has been run yet."]
    lines = []
    for name, label in (
        ("rounds", "Rounds"), ("local_epochs", "E"), ("momentum", "momentum"), ("lr", "lr"), ("batch_size", "batch"),
        ("clients", "clients"), ("model", "model"), ("precision", "precision"), ("device", "device"),
    ):  # fmt: skip
        values = list(
            dict.fromkeys(f"{ours[name]:g}" if isinstance(ours[name], float) else str(ours[name]) for ours in found)
        )
        lines.append(f"{label} {', '.join(values)}")
    seeds = sorted({len(ours["seeds"]) for ours in found})
    lines.append(f"seeds {', '.join(map(str, seeds))}")
    methods = ", ".join(dict.fromkeys(f"`{ours['resolved']}`" for ours in found))
    text = ["; ".join(lines) + ".", f"Methods as run: {methods}."]
    if any(ours["shortened"] for ours in found):
        text.append("A figure in square brackets marks a run that is shorter than the paper's.")
    if other := sum(row["other_versions"] for row in rows):
        text.append(f"{other} runs of another result version are kept and not shown.")
    return text


def latex(rows: Sequence[Row]) -> str:
    """For booktabs."""
    methods, cells, at = grid(rows)
    lines = [f"\\begin{{tabular}}{{l{'c' * len(cells)}}}", "\\toprule"]
    lines.append("method & " + " & ".join(tex(cell) for cell in cells) + " \\\\")
    lines.append("\\midrule")
    for method in methods:
        shown = [tex(cell_text(at[method, cell])) if (method, cell) in at else "-" for cell in cells]
        lines.append(f"{tex(method)} & " + " & ".join(shown) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


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
    ):
        text = text.replace(plain, escaped)
    return text


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each cell and method, everything in it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_plain(row, name) for name in COLUMNS])
    return out.getvalue()


def _plain(row: Row, name: str) -> Any:
    ours = row["ours"] or {}
    known = {
        "cell": row["cell"], "method": row["method"], "difference": row["difference"],
        "printed_mean": row["printed"]["mean"], "printed_std": row["printed"]["std"],
        "ours_mean": ours.get("mean"), "ours_std": ours.get("std"),
    }  # fmt: skip
    value = known[name] if name in known else ours.get(name)
    if isinstance(value, list | dict):
        return " ".join(map(str, value))
    return "" if value is None else value
