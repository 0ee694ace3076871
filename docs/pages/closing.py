"""How much of the gap between skewed and IID data each method closes, in the most skewed cells of CIFAR-10."""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs.pages.claims import by_seed, by_verdict, listed, named, points, seeds, span, verdicts
from docs.pages.depends import CELLS, SETTINGS
from fedskew.paper import mapped
from fedskew.paper.choice import Choice
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Share
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, Difference, paired

SETTING = SETTINGS[-2]
READOUT = "refit"
"""Not a method of training: it fits the last layer of any."""
SEEDS = 3
"""Seeds that a method needs in every cell to be compared."""
Row = Mapping[str, Any]
_HOW = (
    f"CIFAR-10 with {SETTING.name}: accuracy after {SETTING.rounds} rounds (mean of the last ten), and in brackets the "
    "share of the gap between FedAvg under skew and FedAvg on IID data that a method closes. The last column is the "
    "gain on IID data, where there is no skew, with the number of seeds."
)


def closed(results: Results, wanted: range = range(SEEDS)) -> dict[str, dict[str, Row]]:
    """The results of these seeds by method and cell, for methods that have all of them and a known share in each cell.
    The one that closes most comes first, FedAvg last."""
    some = results.where(lambda result: result.seed in wanted)
    found: dict[str, dict[str, Row]] = {}
    for cell in CELLS:
        for row in mapped(cell).rows(some, Choice((cell,), rounds=SETTING.rounds, profile=SETTING.profile)):
            if row["ours"] and row["ours"]["seeds"] == [*wanted] and row["ours"]["gap_closed"]:
                found.setdefault(row["method"], {})[cell] = row["ours"]
    whole = {method: at for method, at in found.items() if len(at) == len(CELLS)}
    return dict(sorted(whole.items(), key=lambda pair: (pair[0] == BASELINE, -_mean_share(pair[1]))))


def section(results: Results) -> Iterator[str]:
    """The table of the methods that have all seeds, and how far the best one gets; nothing if nothing was run."""
    if methods := closed(results):
        yield "## How much of the gap to IID data is closed"
        yield (
            f"{_HOW} Means over the same {SEEDS} seeds for every method, so FedAvg's can differ from "
            "that of tables with more seeds. [Another page](tables/gap.md) has methods "
            "that lack seeds in some of these cells, and what was tried with the best one. Methods that were not run "
            "in all three cells are in the pages of the tables."
        )
        yield _table(methods)
        yield from best(methods)


def once(results: Results) -> Iterator[str]:
    """The table of the methods that have fewer seeds; nothing if there are none."""
    methods, single = closed(results), closed(results, range(1))
    rest = {method: at for method, at in single.items() if method not in methods or method in (BASELINE, "fedlc")}
    if rest.keys() - methods.keys():
        yield (
            f"{_HOW} These methods lack seeds in some cells, so this is the first seed alone, which decides nothing; "
            "FedLC and FedAvg with the same seed are here to compare with:"
        )
        yield _table(rest)


def _table(methods: Mapping[str, Mapping[str, Row]]) -> str:
    rows = [[f"`{m}`", *(_cell(at[cell]) for cell in CELLS), _on_iid(at)] for m, at in methods.items()]
    return "\n".join(as_markdown(["method", *map(named, CELLS), "IID data, points"], rows))


def best(methods: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """The method that closes most, and how it compares with FedLC."""
    if not methods:
        return
    name, at = next(iter(methods.items()))
    over, level = over_fedlc(methods, name), iid_gain(at)
    yield (
        f"`{name}` closes most on average."
        + (f" Against FedLC: {verdicts(over)}." if over else "")
        + (f" On IID data, where there is no skew, it gains {level.mean:+.1f} ({seeds([level])})." if level else "")
        + " It was found by looking at test accuracies, so its lead is somewhat flattered."
    )


def over_fedlc(methods: Mapping[str, Mapping[str, Row]], name: str) -> dict[str, Difference]:
    """A method minus FedLC in each cell; nothing for FedLC itself, or without it."""
    if name == "fedlc" or "fedlc" not in methods:
        return {}
    pairs = {cell: (by_seed(ours), by_seed(methods["fedlc"][cell])) for cell, ours in methods[name].items()}
    return {cell: gain for cell, (mine, other) in pairs.items() if (gain := paired(mine, other))}


def table_of_shares(methods: Mapping[str, Mapping[str, Row]], names: Iterable[str]) -> str:
    """The share of the gap that methods close, how they compare with FedLC, and what they gain without skew."""
    heads = ["method", *map(named, CELLS), "against FedLC, points", "on IID data, points"]
    rows = []
    for name in names:
        over, level = over_fedlc(methods, name), iid_gain(methods[name])
        told = f"{by_verdict(over)}: {points(over)}" if over else "-"
        if {gain.verdict for gain in over.values()} in ({"above"}, {"below"}):
            told = f"{next(iter(over.values())).verdict} in all: {points(over)}"
        closed = [f"{100 * ours['gap_closed']['share']:.0f} %" for ours in methods[name].values()]
        rows.append([f"`{name}`", *closed, told, f"{level.mean:+.1f} ({seeds([level])})" if level else "-"])
    return "\n".join(as_markdown(heads, rows))


def alone(methods: Mapping[str, Mapping[str, Row]], once: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """What the best method closes, and what others close without another: in a table with all seeds, in a range where
    only the first was run."""
    known = [method for method in methods if _single(method)]
    if not known:
        return
    yield (
        f"Share of the gap between FedAvg under skew and on IID data that is closed, {SEEDS} seeds: the best "
        "combinations, and every method alone. Combinations were found by looking at test accuracies, so their lead is "
        "somewhat flattered."
    )
    yield table_of_shares(methods, dict.fromkeys((*combinations(methods), *known)))
    if others := {m: at for m, at in once.items() if _single(m) and m not in known}:
        ends = span([100 * ours["gap_closed"]["share"] for at in others.values() for ours in at.values()], ".0f")
        yield f"With the first seed alone, {listed(f'`{method}`' for method in others)} close {ends} %."


def combinations(methods: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """The best one, and the best of those that ask for nothing after training."""
    quiet = next(name for name in methods if READOUT not in name)
    return [name for name in dict.fromkeys((next(iter(methods)), quiet)) if "+" in name]


def _single(method: str) -> bool:
    """Whether it is one method with its defaults, and one of training."""
    return method.isalpha() and method not in (BASELINE, READOUT)


def _mean_share(at: Mapping[str, Row]) -> float:
    return statistics.fmean(ours["gap_closed"]["share"] for ours in at.values())


def _cell(ours: Row) -> str:
    return f"{ours['last_ten']:.1f} ({Share(**ours['gap_closed'])})"


def _on_iid(at: Mapping[str, Row]) -> str:
    gain = iid_gain(at)
    return "-" if gain is None else f"{gain.mean:+.1f} ({gain.seeds})"


def iid_gain(at: Mapping[str, Row]) -> Difference | None:
    """What a method gains over FedAvg on IID data, which all cells share."""
    gain = next((ours["iid_gain"] for ours in at.values() if ours["iid_gain"]), None)
    return None if gain is None else Difference(**gain)
