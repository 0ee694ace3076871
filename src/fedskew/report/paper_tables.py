"""Tables of the paper, ours beside the printed figure: Markdown, LaTeX, CSV. Rows come from `experiments.paper`."""

import csv
import io
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

COLUMNS = (
    "cell", "method", "printed_mean", "printed_std", "ours_mean", "ours_std", "difference", "seeds", "rounds",
    "shortened", "diverged", "algorithm", "model", "local_epochs", "momentum", "lr", "batch_size", "clients",
    "precision", "device", "seconds", "dataset", "stand_in", "balanced", "client_mean", "last_ten", "partitions",
    "hashes",
)  # fmt: skip


def grid(rows: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Row]]:
    """Methods, cells, and the row of each pair; cells nobody has run are left out when some have been."""
    ran = [row for row in rows if row["ours"]] or list(rows)
    cells = list(dict.fromkeys(row["cell"] for row in ran))
    methods = list(dict.fromkeys(row["method"] for row in ran))
    return methods, cells, {(row["method"], row["cell"]): row for row in rows}


def ours_text(row: Row) -> str:
    """`57.34 ± 0.21 · 57.10`: the last round over seeds, and the mean of the last ten rounds. A shortened run carries
    its rounds, a diverged seed the round it ended in."""
    ours = row["ours"]
    if ours is None:
        return "-"
    text = "diverged" if ours["mean"] is None else f"{ours['mean']:.2f}"
    if ours["std"] is not None:
        text += f" ± {ours['std']:.2f}"
    if ours["last_ten"] is not None:
        text += f" · {ours['last_ten']:.2f}"
    if ours["shortened"]:
        text += f" [{ours['rounds']} rounds]"
    if ours["diverged"]:
        text += f" ({len(ours['diverged'])} diverged, round {min(ours['diverged'].values())})"
    return text


def cell_text(row: Row) -> str:
    """Ours, and in brackets the printed figure and how far ours is above it."""
    printed, difference = row["printed"]["mean"], row["difference"]
    if printed is None:
        return ours_text(row)
    return f"{ours_text(row)} ({printed:.2f}" + ("" if difference is None else f"; {difference:+.2f}") + ")"


def markdown(rows: Sequence[Row]) -> str:
    """Methods down, cells across, the printed figure in brackets; then what ours rests on."""
    methods, cells, at = grid(rows)
    lines = ["| method | " + " | ".join(cells) + " |", "|" + " --- |" * (1 + len(cells))]
    for method in methods:
        shown = [cell_text(at[method, cell]) if (method, cell) in at else "-" for cell in cells]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *rests_on(rows)]) + "\n"


def other_measures(rows: Sequence[Row]) -> list[str]:
    """Accuracy averaged over classes and over clients, for cells whose test set does not have every class alike."""
    lines = []
    for cell in dict.fromkeys(row["cell"] for row in rows):
        here = [row for row in rows if row["cell"] == cell and row["ours"]]
        at = {row["method"]: row["ours"] for row in here if row["ours"]["mean"] is not None}
        if any(abs(ours["mean"] - ours["balanced"]) > 0.005 for ours in at.values()):
            told = [f"{method} {ours['balanced']:.2f}{_client_mean(ours)}" for method, ours in at.items()]
            lines.append(f"{cell}, last round, mean over classes (mean over clients): {', '.join(told)}.")
    return lines


def _client_mean(ours: Row) -> str:
    return "" if ours.get("client_mean") is None else f" ({ours['client_mean']:.2f})"


def rests_on(rows: Sequence[Row]) -> list[str]:
    """Settings, length, seeds, arithmetic, device and time of the runs shown, and what is set aside."""
    found = [row["ours"] for row in rows if row["ours"]]
    other = sum(row["other_versions"] for row in rows)
    aside = [f"{other} runs of another result version are kept and not shown."] if other else []
    if not found:
        return ["Nothing of this has been run yet.", *aside]
    settings, seeds, methods = settings_of(found)
    text = [f"Last round · mean of the last ten rounds (the paper's; difference). {settings}", seeds, methods]
    if any(row["stand_in"] for row in rows):
        text.insert(0, f"STAND-IN DATA: {_values(found, 'dataset')}, not the paper's.")
    if any(ours["shortened"] for ours in found):
        text.append("A figure in square brackets marks a run that is shorter than the paper's.")
    if absent := _absent(rows):
        text.append(f"Not run: {', '.join(absent)}.")
    return [*text, *aside, *other_measures(rows)]


def _absent(rows: Sequence[Row]) -> list[str]:
    """Cells that the table leaves out because nothing of them has been run."""
    ran = {row["cell"] for row in rows if row["ours"]}
    return list(dict.fromkeys(row["cell"] for row in rows if row["cell"] not in ran))


def settings_of(found: Sequence[Row]) -> list[str]:
    """What runs were done with, each value once."""
    settings = [f"{label} {_values(found, name)}" for name, label in _LABELS.items()]
    seconds = sum(ours["seconds"] for ours in found)
    return [
        "; ".join(settings) + ".",
        f"Seeds {_values(found, 'seeds')}; {seconds:,.0f} s of rounds in all.",
        f"Methods as run: {', '.join(dict.fromkeys('`' + ours['resolved'] + '`' for ours in found))}.",
    ]


_LABELS = {
    "rounds": "Rounds", "local_epochs": "E", "momentum": "momentum", "lr": "lr", "batch_size": "batch",
    "clients": "clients", "model": "model", "precision": "precision", "device": "device",
}  # fmt: skip


def _values(found: Sequence[Row], name: str) -> str:
    """The values that a setting has among these, each once."""
    shown = (f"{ours[name]:g}" if isinstance(ours[name], float) else str(ours[name]) for ours in found)
    return ", ".join(dict.fromkeys(shown))


def latex(rows: Sequence[Row]) -> str:
    """For booktabs."""
    methods, cells, at = grid(rows)
    lines = ["% STAND-IN DATA, not the paper's"] if any(row["stand_in"] for row in rows) else []
    lines += [f"\\begin{{tabular}}{{l{'c' * len(cells)}}}", "\\toprule"]
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
        "cell": row["cell"], "method": row["method"], "difference": row["difference"], "stand_in": row["stand_in"],
        "printed_mean": row["printed"]["mean"], "printed_std": row["printed"]["std"],
        "ours_mean": ours.get("mean"), "ours_std": ours.get("std"),
    }  # fmt: skip
    value = known[name] if name in known else ours.get(name)
    if isinstance(value, list | dict):
        return " ".join(map(str, value))
    return "" if value is None else value
