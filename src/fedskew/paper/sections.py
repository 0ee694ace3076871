"""A table of the paper as it is read: for each data set some small tables, each with one kind of figure."""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedskew.core.spec import name_in
from fedskew.runs.measures import Reach, Share, target_words
from fedskew.runs.summary import counted, seeds_text
from fedskew.runs.verdict import BASELINE, Difference

Row = dict[str, Any]
Text = Callable[[Row], str]
NOTHING = "-"


@dataclass(frozen=True)
class Section:
    """One kind of figure: a line per method, a column per cell."""

    title: str
    heads: list[str]
    rows: list[list[str]]


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each data set that was run. Cells that were not run stand with those of the same place, or with the
    last data set."""
    data = {row["cell"]: name_in(row["ours"]["dataset"]) for row in rows if row["ours"]}
    places = {_place(cell): name for cell, name in data.items()}
    last = next(reversed(data.values()), "")
    found: dict[str, list[Row]] = {name: [] for name in data.values()} or {last: []}
    for row in rows:
        found[data.get(row["cell"]) or places.get(_place(row["cell"]), last)].append(row)
    return found


def sections(rows: Sequence[Row], target: float | None = None, named: Callable[[str], str] = str) -> list[Section]:
    """What is known of the rows of one data set: accuracy, and where they were run gains over FedAvg, rounds, the share
    of the IID gap, and other accuracies."""
    columns, ran = _Columns(rows, named), [row for row in rows if row["ours"]]
    compared, shared = _with(ran, "gain"), _with(ran, "gap_closed")
    finished = _with(ran, "mean")
    uneven = any(abs(row["ours"]["mean"] - row["ours"]["balanced"]) > 0.005 for row in finished)
    theirs = any(row["printed"]["mean"] is not None for row in rows)
    several = {row["ours"]["gap_closed"]["seeds"] for row in shared}
    found = [
        columns.section(_accuracy_title(ran, theirs), rows, accuracy_text),
        columns.section(_gain_title(compared, theirs), compared, _gains_in(rows), columns.on_iid(compared)),
        columns.section(f"Rounds to {target_words(target)}", _with(ran, "rounds_to_reach"), _reach_text),
        columns.section(_share_title(several), _others(shared), partial(_share_text, numbered=len(several) > 1)),
        columns.section("Balanced accuracy of the last round, %", finished if uneven else [], _figure("balanced")),
        columns.section(
            "Mean of the clients' accuracies, last round, %", _with(ran, "client_mean"), _figure("client_mean")
        ),
    ]
    return [section for section in found if section.rows]


def _with(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row["ours"][name] is not None]


def _others(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["method"] != BASELINE]


def _accuracy_title(ran: Sequence[Row], theirs: bool) -> str:
    rounds = {row["ours"]["rounds"] for row in ran}
    length = f" after {counted(min(rounds), 'round')}" if len(rounds) == 1 else ""
    several = any(len(row["ours"]["each"]) > 1 for row in ran)
    seeds = ", one seed" if ran and not several else " ± standard deviation over seeds"
    printed = " (the paper's, of the last round)" if theirs else ""
    return f"Accuracy{length}, %: mean of the last ten rounds{seeds}{printed}"


def accuracy_text(row: Row) -> str:
    """`57.14 ± 3.05 (54.55)`, the printed figure in brackets. A seed that diverged carries the round it ended in."""
    ours, printed = row["ours"], row["printed"]["mean"]
    theirs = "" if printed is None else f" ({printed:.2f})"
    return (NOTHING if ours is None else _ours_text(ours)) + theirs


def _ours_text(ours: Mapping[str, Any]) -> str:
    ends, lost = ours["each_last_ten"], ours["diverged"]
    known = [f"{ours['last_ten']:.2f}"] if ends else []
    spread = [f"± {statistics.stdev(ends):.2f}"] if len(ends) > 1 else []
    ended = [f"{len(lost)} diverged, round {min(lost.values())}"] if lost else []
    return " ".join([*known, *spread]) + (", " if known and ended else "") + "".join(ended)


def _share_text(row: Row, *, numbered: bool) -> str:
    share = Share(**row["ours"]["gap_closed"])
    return f"{share}" + (f" ({seeds_text(share.seeds)})" if numbered else "")


def _share_title(seeds: Collection[int]) -> str:
    """With the number of seeds if it is the same everywhere."""
    return "Share of the IID gap closed" + (f" ({seeds_text(*seeds)})" if len(seeds) == 1 else "")


def _reach_text(row: Row) -> str:
    return str(Reach(**row["ours"]["rounds_to_reach"]))


def _figure(name: str) -> Text:
    return lambda row: f"{row['ours'][name]:.2f}"


def _gain_title(rows: Sequence[Row], theirs: bool) -> str:
    decided = any(row["ours"]["gain"]["half"] is not None for row in rows)
    what = f"Points over FedAvg{' [95 % interval over seeds], verdict' if decided else ''}"
    return what + (" (the paper's)" if theirs else "")


def _gains_in(rows: Sequence[Row]) -> Text:
    """`+15.86 [+14.25, +17.46] above (+16.92)`, the paper's gain in brackets"""
    plain = {row["cell"]: row["printed"]["mean"] for row in rows if row["method"] == BASELINE}

    def text(row: Row) -> str:
        mine, base = row["printed"]["mean"], plain.get(row["cell"])
        theirs = "" if mine is None or base is None else f" ({mine - base:+.2f})"
        return _difference_text(row["ours"]["gain"]) + theirs

    return text


def _difference_text(gain: Mapping[str, Any]) -> str:
    found = Difference(**gain)
    word = found.verdict if found.interval else ""
    return f"{found.mean:+.2f} {found.interval} {word}".rstrip() + found.losses


class _Columns:
    """The methods and cells of some rows, in their order, and the cells' names in short."""

    def __init__(self, rows: Sequence[Row], named: Callable[[str], str]) -> None:
        shown = [row for row in rows if row["ours"]] or rows
        ran = {row["method"] for row in shown}
        self.methods = [method for method in dict.fromkeys(row["method"] for row in rows) if method in ran]
        cells = list(dict.fromkeys(row["cell"] for row in shown))
        self.short = dict(zip(cells, _without_common(cells), strict=True))
        rounds = {row["cell"]: row["ours"]["rounds"] for row in shown if row["ours"]}
        marked = len(set(rounds.values())) > 1
        self.marks = {cell: f" [{counted(rounds[cell], 'round')}]" if marked else "" for cell in cells}
        self.heads = [named(self.short[cell]) + self.marks[cell] for cell in cells]

    def section(
        self, title: str, rows: Sequence[Row], text: Text, more: Mapping[str, Mapping[str, str]] | None = None
    ) -> Section:
        """The text of each row; `more` has further columns, by method."""
        at = {(row["method"], row["cell"]): text(row) for row in rows}
        lines = [
            [
                method,
                *(at.get((method, cell), NOTHING) for cell in self.short),
                *(column.get(method, NOTHING) for column in (more or {}).values()),
            ]
            for method in self.methods
            if any(method == known for known, _ in at)
        ]
        return Section(title, ["method", *self.heads, *(more or {})], lines)

    def on_iid(self, rows: Sequence[Row]) -> dict[str, dict[str, str]]:
        """What methods gain on IID data, by column: cells may differ in more than their split, and in their rounds."""
        places = dict.fromkeys(_place(cell) or cell for cell in self.short)
        known: dict[str, dict[str, str]] = {}
        for row in rows:
            if gain := row["ours"]["iid_gain"]:
                short = self.short[row["cell"]]
                place = f"{_place(short) or short}, " if len(places) > 1 else ""
                column = known.setdefault(f"{place}IID data{self.marks[row['cell']]}", {})
                column[row["method"]] = _difference_text(gain)
        return known


def _place(cell: str) -> str:
    """A cell's name without its split."""
    return cell.rpartition("/")[0]


def _without_common(cells: Sequence[str]) -> list[str]:
    """Names without the parts that all of them have; the last part stays."""
    split = [cell.split("/") for cell in cells]
    common = set[str].intersection(*map(set, split)) if split else set[str]()
    return ["/".join([*(part for part in most if part not in common), last]) for *most, last in split]
