"""Tables of the paper, our figures next to the printed ones: Markdown, LaTeX, CSV. Rows come from `paper.table`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedskew.paper.table import answer
from fedskew.report.text_tables import as_csv, as_latex, as_markdown
from fedskew.runs.measures import Reach, Share, target_words
from fedskew.runs.results import Results
from fedskew.runs.summary import LAST, seeds_text, tail
from fedskew.runs.verdict import Difference

Row = dict[str, Any]
Shown = tuple[list[str], list[list[str]]]
"""Heads, and the texts of each line."""
NOT_RUN = "None of this is in the store or among the published results."

COLUMNS = (
    "cell", "method", "printed_mean", "printed_std", "ours_mean", "ours_std", "difference", "seeds", "rounds",
    "shortened", "diverged_seeds", "algorithm", "model", "local_epochs", "momentum", "lr", "batch_size", "clients",
    "precision", "device", "seconds", "dataset", "stand_in", "balanced", "client_mean", "last_ten", "partitions",
    "hashes", "gain", "gain_half", "rounds_to_reach", "seeds_that_reached", "iid_gap", "iid_gap_closed", "iid_gain",
)  # fmt: skip


def grid(rows: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Row]]:
    """Methods, cells, and the row of each pair; cells without runs are left out if others have some."""
    ran = [row for row in rows if row["ours"]] or list(rows)
    cells = list(dict.fromkeys(row["cell"] for row in ran))
    shown = {row["method"] for row in ran}
    methods = [method for method in dict.fromkeys(row["method"] for row in rows) if method in shown]
    return methods, cells, {(row["method"], row["cell"]): row for row in rows}


def ours_text(row: Row) -> str:
    """`57.34 ± 0.21 · 57.10`: the last round over seeds, and the mean of the last ten rounds. A diverged seed carries
    the round it ended in."""
    ours = row["ours"]
    if ours is None:
        return "-"
    text = "diverged" if ours["mean"] is None else f"{ours['mean']:.2f}"
    if ours["std"] is not None:
        text += f" ± {ours['std']:.2f}"
    if ours["last_ten"] is not None:
        text += f" · {ours['last_ten']:.2f}"
    if ours["diverged"]:
        text += f" ({len(ours['diverged'])} diverged, round {min(ours['diverged'].values())})"
    return text


def cell_text(row: Row) -> str:
    """Our figure, then in brackets the printed one and how far ours is above it."""
    printed, difference = row["printed"]["mean"], row["difference"]
    if printed is None:
        return ours_text(row)
    return f"{ours_text(row)} ({printed:.2f}" + ("" if difference is None else f"; {difference:+.2f}") + ")"


def markdown(rows: Sequence[Row], target: float | None = None) -> str:
    """A row per method and a column per cell, printed figures in brackets; the settings of our runs; the gains."""
    lines = [*as_markdown(*whole(rows)), "", *rests_on(rows)]
    if gained := gains(rows, target):
        heads, texts, said = gained
        lines += ["", *as_markdown(heads, texts), "", *said]
    return "\n".join(lines) + "\n"


def whole(rows: Sequence[Row]) -> Shown:
    """A line per method, with the text of each cell."""
    return _shown(rows, cell_text)


def _shown(rows: Sequence[Row], text: Callable[[Row], str]) -> Shown:
    methods, cells, at = grid(rows)
    texts = [[m, *(text(at[m, c]) if (m, c) in at else "-" for c in cells)] for m in methods]
    return ["method", *(_head(rows, cell) for cell in cells)], texts


def _head(rows: Sequence[Row], cell: str) -> str:
    """A cell's name, and its rounds if those are fewer than the paper's: all runs of a cell have one length."""
    ours = next((row["ours"] for row in rows if row["cell"] == cell and row["ours"]), None)
    return cell if ours is None else _marked(cell, ours)


def _marked(name: str, ours: Row) -> str:
    return f"{name} [{ours['rounds']} rounds]" if ours["shortened"] else name


def gains(
    rows: Sequence[Row], target: float | None = None, *, words: bool = False
) -> tuple[list[str], list[list[str]], list[str]] | None:
    """Gains of the other methods that were run over FedAvg, as `whole` has them, and a legend; None if none was. With
    `words` each interval has its verdict."""
    ran = [row for row in rows if row["ours"] and row["ours"]["gain"]]
    if not ran:
        return None
    said = [
        f"Points over FedAvg in the mean of the last ten rounds [95 % interval over seeds]{' verdict' if words else ''}"
        f" · rounds to {target_words(target)} · share of the IID gap closed."
    ]
    if level := _on_iid(ran, words=words):
        said.append(f"Gain on IID data, points: {level}.")
    return *_shown(ran, partial(gain_text, words=words)), said


def _on_iid(rows: Sequence[Row], *, words: bool) -> str:
    """`fedlc +1.00`; where cells differ in more than their split, `cifar10: fedlc +1.00; svhn: fedlc -0.10`."""
    at: dict[str, dict[str, str]] = {}
    for row in rows:
        known = at.setdefault(_marked(row["cell"].rpartition("/")[0] or row["cell"], row["ours"]), {})
        if gain := row["ours"]["iid_gain"]:
            known[row["method"]] = _difference_text(gain, words=words)
    told = {place: ", ".join(f"{method} {gain}" for method, gain in found.items()) for place, found in at.items()}
    return "; ".join(gains if len(at) == 1 else f"{place}: {gains}" for place, gains in told.items() if gains)


def gain_text(row: Row, *, words: bool = False) -> str:
    """`+15.89 [+9.66, +22.13] · 40 · 38 %`; with `words`, `above` after the interval"""
    ours = row["ours"]
    reach = ours["rounds_to_reach"]
    parts = [_difference_text(ours["gain"], words=words), "-" if reach is None else str(Reach(**reach))]
    return " · ".join([*parts, share_text(ours)])


def share_text(ours: Mapping[str, Any]) -> str:
    """`38 %`, and with fewer seeds than the gain, since FedAvg was not run with all of them on IID data, how many:
    `38 % (one seed)`."""
    if ours["gap_closed"] is None:
        return "-"
    share = Share(**ours["gap_closed"])
    fewer = ours["gain"] is not None and share.seeds != ours["gain"]["seeds"]
    return f"{share}" + (f" ({seeds_text(share.seeds)})" if fewer else "")


def _difference_text(gain: Row, *, words: bool) -> str:
    found = Difference(**gain)
    word = found.verdict if words and found.interval else ""
    return f"{found.mean:+.2f} {found.interval} {word}".rstrip() + found.losses


def other_measures(rows: Sequence[Row]) -> list[str]:
    """Accuracy averaged over classes and over clients, for cells whose test classes differ in size."""
    lines = []
    for cell in dict.fromkeys(row["cell"] for row in rows):
        here = [row for row in rows if row["cell"] == cell and row["ours"]]
        at = {row["method"]: row["ours"] for row in here if row["ours"]["mean"] is not None}
        if any(abs(ours["mean"] - ours["balanced"]) > 0.005 for ours in at.values()):
            clients = {m: f" ({o['client_mean']:.2f})" for m, o in at.items() if o.get("client_mean") is not None}
            told = [f"{method} {ours['balanced']:.2f}{clients.get(method, '')}" for method, ours in at.items()]
            means = f"mean over classes{' (mean over clients)' if clients else ''}"
            lines.append(f"{cell}, last round, {means}: {', '.join(told)}.")
    return lines


def rests_on(rows: Sequence[Row]) -> list[str]:
    """Settings, length, seeds, arithmetic, device and time of the runs shown, and which runs are left out."""
    found = [row["ours"] for row in rows if row["ours"]]
    other = sum(row["other_versions"] for row in rows)
    aside = [f"{other} runs of another result version are not shown."] if other else []
    if not found:
        return [NOT_RUN, *aside]
    settings, seeds, methods = settings_of(found)
    text = [f"Last round · mean of the last ten rounds (the paper's; difference). {settings}", seeds, methods]
    if any(row["stand_in"] for row in rows):
        text.insert(0, f"STAND-IN DATA: {_values(found, 'dataset')}, not the paper's.")
    if any(ours["shortened"] for ours in found):
        text.append("Rounds in square brackets are fewer than the paper's.")
    if any(tail(ours["rounds"]) < LAST for ours in found):
        text.append(f"Of fewer than {2 * LAST - 1} rounds, the last half stands for the last ten.")
    ran = {row["cell"] for row in rows if row["ours"]}
    if absent := dict.fromkeys(row["cell"] for row in rows if row["cell"] not in ran):
        text.append(f"Not run: {', '.join(absent)}.")
    return [*text, *aside, *other_measures(rows)]


def settings_of(found: Sequence[Row]) -> list[str]:
    """The settings of the runs, each value once."""
    settings = [f"{label} {_values(found, name)}" for name, label in _LABELS.items()]
    seconds = [ours["seconds"] for ours in found]
    total = "" if None in seconds else f"; {sum(seconds):,.0f} s of rounds in total"
    return [
        "; ".join(settings) + ".",
        f"Seeds {_seeds_text(found)}{total}.",
        f"Methods as run: {', '.join(dict.fromkeys('`' + ours['resolved'] + '`' for ours in found))}.",
    ]


def _seeds_text(found: Sequence[Row]) -> str:
    """`0, 1, 2`; where some have fewer, `0 or 0, 1, 2 (...)`, with what that means for a reader."""
    known = sorted({tuple(ours["seeds"]) for ours in found}, key=lambda seeds: (len(seeds), seeds))
    text = " or ".join(", ".join(map(str, seeds)) for seeds in known)
    several = " (a figure without ± is of one seed; only gains compare methods over the same seeds)"
    return text + (several if len(known) > 1 else "")


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


_LABELS = {
    "rounds": "Rounds", "local_epochs": "E", "momentum": "momentum", "lr": "lr", "batch_size": "batch",
    "clients": "clients", "model": "model", "precision": "precision", "device": "device",
}  # fmt: skip


def _values(found: Sequence[Row], name: str) -> str:
    """The distinct values of a setting among these; runs of one cell may have several devices."""
    shown = (f"{ours[name]:g}" if isinstance(ours[name], float) else str(ours[name]) for ours in found)
    return ", ".join(dict.fromkeys(value for text in shown for value in text.split(", ")))


def latex(rows: Sequence[Row], target: float | None = None) -> str:
    """For booktabs: the figures, then the gains over FedAvg."""
    lines = ["% STAND-IN DATA, not the paper's"] if any(row["stand_in"] for row in rows) else []
    lines += as_latex(*whole(rows))
    if gained := gains(rows, target):
        heads, texts, said = gained
        lines += ["", *(f"% {line}" for line in said), *as_latex(heads, texts)]
    return "\n".join(lines) + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """One line for each cell and method, everything in it."""
    return as_csv(COLUMNS, [[_plain(row, name) for name in COLUMNS] for row in rows])


_NESTED = {
    "printed_mean": ("printed", "mean"), "printed_std": ("printed", "std"), "ours_mean": ("ours", "mean"),
    "ours_std": ("ours", "std"), "gain": ("ours", "gain", "mean"), "gain_half": ("ours", "gain", "half"),
    "rounds_to_reach": ("ours", "rounds_to_reach", "rounds"), "iid_gap": ("ours", "gap_closed", "gap"),
    "seeds_that_reached": ("ours", "rounds_to_reach", "reached"), "iid_gap_closed": ("ours", "gap_closed", "share"),
    "iid_gain": ("ours", "iid_gain", "mean"), "diverged_seeds": ("ours", "diverged"),
}  # fmt: skip
"""Where in a row a column is; the others are in the row itself, or in `ours`."""


def _plain(row: Row, name: str) -> Any:
    value: Any = row
    for key in _NESTED.get(name, (name,) if name in row else ("ours", name)):
        value = (value or {}).get(key)
    if isinstance(value, float):
        return round(value, 4)
    return " ".join(map(str, value)) if isinstance(value, list | dict) else value
