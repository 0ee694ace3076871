"""Tables of the paper, our figures next to the printed ones: Markdown, LaTeX, CSV. Rows come from `paper.table`."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.paper.sections import Row, Section, by_data, sections
from fedskew.paper.table import answer
from fedskew.report.text_tables import as_csv, as_latex, as_markdown
from fedskew.runs.results import Results
from fedskew.runs.summary import LAST, tail

NOT_RUN = "None of this is in the store or among the published results."

COLUMNS = (
    "cell", "method", "printed_mean", "printed_std", "ours_mean", "ours_std", "difference", "seeds", "rounds",
    "shortened", "diverged_seeds", "algorithm", "model", "local_epochs", "momentum", "lr", "batch_size", "clients",
    "precision", "device", "seconds", "dataset", "stand_in", "balanced", "client_mean", "last_ten", "partitions",
    "hashes", "gain", "gain_half", "rounds_to_reach", "seeds_that_reached", "iid_gap", "iid_gap_closed", "iid_gain",
)  # fmt: skip


def markdown(rows: Sequence[Row], target: float | None = None) -> str:
    """For each data set a table for each kind of figure, with a line per method and a column per cell, and what they
    rest on."""
    lines = list[str]()
    known = by_data(rows)
    for data, here in known.items():
        lines += [f"### {data}", ""] if len(known) > 1 else []
        lines += markdown_tables(sections(here, target))
        lines += [*(f"- {line}" for line in rests_on(here)), ""]
    return "\n".join(lines)


def markdown_tables(shown: Sequence[Section]) -> list[str]:
    """Lines, each table under its title."""
    return [line for one in shown for line in (f"**{one.title}**", "", *as_markdown(one.heads, one.rows), "")]


def rests_on(rows: Sequence[Row]) -> list[str]:
    """Settings, length, seeds, arithmetic, device and time of the runs shown, and which runs are left out."""
    found = [row["ours"] for row in rows if row["ours"]]
    other = sum(row["other_versions"] for row in rows)
    aside = [f"{other} runs of another result version are not shown."] if other else []
    if not found:
        return [NOT_RUN, *aside]
    text = settings_of(found)
    if any(row["stand_in"] for row in rows):
        text.insert(0, f"STAND-IN DATA: {_values(found, 'dataset')}, not the paper's.")
    if short := sum(ours["shortened"] for ours in found):
        text.append(f"{'All' if short == len(found) else 'Some'} have fewer rounds than in the paper.")
    if any(tail(ours["rounds"]) < LAST for ours in found):
        text.append(f"Of fewer than {2 * LAST - 1} rounds, the last half stands for the last ten.")
    ran = {row["cell"] for row in rows if row["ours"]}
    if absent := dict.fromkeys(row["cell"] for row in rows if row["cell"] not in ran):
        text.append(f"Not run: {', '.join(absent)}.")
    return [*text, *aside]


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
    """For booktabs: the same tables."""
    lines = ["% STAND-IN DATA, not the paper's"] if any(row["stand_in"] for row in rows) else []
    for data, here in by_data(rows).items():
        for one in sections(here, target):
            lines += [f"% {data}: {one.title}" if data else f"% {one.title}", *as_latex(one.heads, one.rows), ""]
    return "\n".join(lines)


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
