"""How much of the gap between skewed and IID data each method closes, in the most skewed cells of CIFAR-10."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from docs.pages.claims import listed, named, span
from docs.pages.depends import CELLS, SETTINGS
from fedskew.paper import mapped
from fedskew.paper.choice import Choice
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Share
from fedskew.runs.results import Results
from fedskew.runs.verdict import Difference

SETTING = SETTINGS[-2]
READOUT = "refit"
"""Not a method of training: it fits the last layer of any."""
SEEDS = 3
"""Seeds that a method needs in every cell to be named as the best."""
Row = Mapping[str, Any]


def closed(results: Results) -> dict[str, dict[str, Row]]:
    """The results of every method but FedAvg by cell, for those with a known share in each cell. The one that closes
    most comes first."""
    choice = Choice(profile=SETTING.profile, rounds=SETTING.rounds)
    found: dict[str, dict[str, Row]] = {}
    for cell in CELLS:
        for row in mapped(cell).rows(results, choice):
            if row["cell"] == cell and row["ours"] and row["ours"]["gap_closed"] and row["method"] != "fedavg":
                found.setdefault(row["method"], {})[cell] = row["ours"]
    whole = {method: at for method, at in found.items() if len(at) == len(CELLS)}
    return dict(sorted(whole.items(), key=lambda pair: -_mean_share(pair[1])))


def section(results: Results) -> Iterator[str]:
    """The table, and how far the best method gets; nothing if nothing was run."""
    methods = closed(results)
    if not methods:
        return
    yield "## How much of the gap to IID data is closed"
    yield (
        "The table shows which share of the gap between FedAvg under skew and FedAvg on IID data a method closes, "
        f"with {SETTING.name}, after {SETTING.rounds} rounds (mean of the last ten). The brackets give the points over"
        " FedAvg and the number of seeds. The last column is the gain on IID data, where there is no skew. Methods "
        "that were not run in all three cells are in the tables below."
    )
    rows = [[f"`{m}`", *(_cell(at[cell]) for cell in CELLS), _on_iid(at)] for m, at in methods.items()]
    yield "\n".join(as_markdown(["method", *CELLS, "IID data, points"], rows))
    yield from best(methods)


def best(methods: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """The method that closes most, of those with enough seeds."""
    known = with_seeds(methods)
    if not known:
        return
    name, at = next(iter(known.items()))
    told = (
        f"{100 * ours['gap_closed']['share']:.0f} % at {named(cell)}, accuracy {ours['last_ten']:.1f}"
        for cell, ours in at.items()
    )
    yield (
        f"Of the methods with at least {SEEDS} seeds in each cell, `{name}` closes most of the gap to IID data on "
        f"average: {'; '.join(told)}."
    )


def alone(methods: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """What each method closes without another: one by one with enough seeds, in a range with fewer."""
    single = {m: at for m, at in methods.items() if m.isalpha() and m != READOUT}
    known = with_seeds(single)
    if not known:
        return
    cells = listed(named(cell) for cell in next(iter(known.values())))
    told = f"What methods close alone at {cells}, with at least {SEEDS} seeds: "
    told += ", ".join(f"`{method}` {shares(at)}" for method, at in known.items()) + "."
    if others := {method: at for method, at in single.items() if method not in known}:
        ends = span([100 * ours["gap_closed"]["share"] for at in others.values() for ours in at.values()], ".0f")
        told += f" With fewer seeds, {listed(f'`{method}`' for method in others)} close {ends} %."
    yield told


def with_seeds(methods: Mapping[str, Mapping[str, Row]]) -> dict[str, Mapping[str, Row]]:
    """The methods that have enough seeds in every cell."""
    return {m: at for m, at in methods.items() if all(len(ours["seeds"]) >= SEEDS for ours in at.values())}


def shares(at: Mapping[str, Row]) -> str:
    """`77, 85 and 82 %`"""
    texts = (format(100 * ours["gap_closed"]["share"], ".0f") for ours in at.values())
    return f"{listed(texts)} %"


def _mean_share(at: Mapping[str, Row]) -> float:
    return statistics.fmean(ours["gap_closed"]["share"] for ours in at.values())


def _cell(ours: Row) -> str:
    gain, share = Difference(**ours["gain"]), Share(**ours["gap_closed"])
    return f"{share} ({gain.mean:+.1f}, {gain.seeds})"


def _on_iid(at: Mapping[str, Row]) -> str:
    gain = next((ours["iid_gain"] for ours in at.values() if ours["iid_gain"]), None)
    return "-" if gain is None else f"{gain['mean']:+.1f} ({gain['seeds']})"
