"""How methods compare on each data set, line by line of a table."""

from collections.abc import Iterator, Mapping

from docs.pages.claims import by_seed, by_verdict, common_seeds, listed, named, on_common_seeds, points, span
from docs.pages.closing import READOUT
from fedskew.core.spec import name_in
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import SEVEN
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, FEWEST, Difference, paired

PLACES = {
    "cifar10": ("usual",),
    "cifar100": ("usual",),
    "imagenet12": ("usual",),
    "svhn": ("usual",),
    "synthetic": ("stated", "usual"),
}
"""Data sets of tables 1 to 4, and the profiles to tell of."""
NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "imagenet12": "12 classes of Tiny-ImageNet",
    "synthetic": "Synthetic",
}
LEAD = 0.1
"""Points by which a method must be ahead of all others to be first."""
Cells = Mapping[str, Mapping[str, Mapping[int, float]]]
Ends = Mapping[str, Mapping[str, Mapping[int, float | None]]]
"""With seeds that diverged."""


def cells(results: Results, data: str, profile: str = "usual") -> Cells:
    """For each cell of a data set, the accuracy of each method by seed; mean of the last ten rounds, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for table in (TABLES[f"table{number}"] for number in range(1, 5)):
        there = tuple(cell for cell in table.cells if name_in(cell.partition("/")[0]) == data)
        for row in table.rows(results, Choice(cells=there, profile=PROFILES[profile])) if there else ():
            if row["ours"] and not row["ours"]["diverged"]:
                found.setdefault(row["cell"], {})[row["method"]] = by_seed(row["ours"])
    return found


def against(at: Ends, method: str, other: str) -> dict[str, Difference]:
    """A method minus another in every cell that has both, over the seeds that both have."""
    both = {cell: paired(of[method], of[other]) for cell, of in at.items() if method in of and other in of}
    return {cell: found for cell, found in both.items() if found}


def row(what: str, found: Mapping[str, Difference]) -> list[str]:
    """A comparison as a line of a table: verdicts by split, points, seeds."""
    return [what, by_verdict(found), points(found), span([gain.seeds for gain in found.values()], "d")]


def rows(results: Results, data: str, profile: str) -> Iterator[list[str]]:
    """What is known of a data set trained in one way: FedLC, logit adjustment, readouts, and methods that are
    everywhere above FedAvg or below it; nothing if FedLC was not run there."""
    at = cells(results, data, profile)
    gains = against(at, "fedlc", BASELINE)
    if not gains:
        return
    yield row("FedLC against FedAvg", gains)
    if adjusted := against(at, "fedla", "fedlc"):
        yield row("`fedla` against FedLC", adjusted)
    yield from _read_out(at)
    yield from _everywhere(at)


def firsts(results: Results, data: str, profile: str) -> Iterator[list[str]]:
    """Who has the highest mean: of the paper's methods, and of all if that is another."""
    at = cells(results, data, profile)
    papers = first({cell: {m: of[m] for m in of if m in SEVEN} for cell, of in at.items()})
    everybody = {cell: {m: of[m] for m in of if READOUT not in m} for cell, of in at.items()}
    if papers:
        yield ["highest mean of the paper's methods", papers[0], "", papers[1]]
    if (others := first(everybody)) and others != papers:
        number = span([len(of) for of in everybody.values()], "d")
        yield [f"highest mean of {number} methods, none with `{READOUT}`", others[0], "", others[1]]


def _read_out(at: Cells) -> Iterator[list[str]]:
    """What a readout gains on FedAvg's own model, and what it is combined with adds to that."""
    methods = dict.fromkeys(method for of in at.values() for method in of if READOUT in method)
    base, other = (READOUT, f"`{READOUT}`") if READOUT in methods else (BASELINE, "FedAvg")
    if READOUT in methods:
        yield row(f"`{READOUT}` (FedAvg with a fitted last layer) against FedLC", against(at, READOUT, "fedlc"))
    for method in methods:
        if method != READOUT and (found := against(at, method, base)):
            yield row(f"`{method}` against {other}", found)


def first(at: Cells) -> tuple[str, str] | None:
    """Who has the highest mean in which cells, over the seeds that all methods of a cell have, and the number of these
    seeds; nothing if no cell has enough methods."""
    known = {cell: on_common_seeds(of) for cell, of in at.items()}
    known = {cell: means for cell, means in known.items() if len(means) >= FEWEST}
    if not known:
        return None
    winners: dict[str, list[str]] = {}
    for cell, means in known.items():
        (best, most), (_, second), *_ = sorted(means.items(), key=lambda pair: -pair[1])
        winners.setdefault(f"`{best}`" if most - second >= LEAD else "nobody", []).append(named(cell))
    each = [f"{who} in {'all' if len(there) == len(known) else ', '.join(there)}" for who, there in winners.items()]
    common = [len(common_seeds(at[cell])) for cell in known]
    return listed(each), span(common, "d")


def _everywhere(at: Cells) -> Iterator[list[str]]:
    """Methods that are above FedAvg in every cell, those that are below it in every cell, and between them combinations
    that were run in every cell; nothing of a single cell. Combinations with a readout have their own lines."""
    methods = dict.fromkeys(
        m for of in at.values() for m in of if m not in (BASELINE, "fedlc") and not m.endswith(f"+{READOUT}")
    )
    known = {method: found for method in methods if len(found := against(at, method, BASELINE)) == len(at) > 1}
    said = {method: {gain.verdict for gain in found.values()} for method, found in known.items()}
    above, below = ([method for method in known if said[method] == {word}] for word in ("above", "below"))
    mixed = [method for method in known if "+" in method and method not in (*above, *below)]
    for method in (*above, *mixed, *below):
        yield row(f"`{method}` against FedAvg", known[method])


def against_fedlc(results: Results, data: str) -> Iterator[list[str]]:
    """The paper's methods that have a higher mean than FedLC in some cell, with every verdict."""
    at = cells(results, data)
    others = {method: against(at, method, "fedlc") for method in SEVEN if method not in (BASELINE, "fedlc")}
    for method, found in others.items():
        if any(gain.mean > 0 for gain in found.values()):
            yield row(f"`{method}` against FedLC", found)
