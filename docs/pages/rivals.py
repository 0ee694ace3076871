"""How methods compare on each data set, in sentences."""

from collections.abc import Iterator, Mapping

from docs.pages.claims import by_seed, listed, many, named, on_common_seeds, seeds, span, verdicts
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
    "imagenet12": "12 classes of ImageNet",
    "synthetic": "Synthetic",
}
LEAD = 0.1
"""Points by which a method must be ahead of all others to be first."""
Cells = Mapping[str, Mapping[str, Mapping[int, float]]]


def cells(results: Results, data: str, profile: str = "usual") -> Cells:
    """For each cell of a data set, the accuracy of each method by seed; mean of the last ten rounds, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for table in (TABLES[f"table{number}"] for number in range(1, 5)):
        there = tuple(cell for cell in table.cells if name_in(cell.partition("/")[0]) == data)
        for row in table.rows(results, Choice(cells=there, profile=PROFILES[profile])) if there else ():
            if row["ours"] and not row["ours"]["diverged"]:
                found.setdefault(row["cell"], {})[row["method"]] = by_seed(row["ours"])
    return found


def against(at: Cells, method: str, other: str) -> dict[str, Difference]:
    """A method minus another in every cell that has both, over the seeds that both have."""
    both = {cell: paired(of[method], of[other]) for cell, of in at.items() if method in of and other in of}
    return {cell: found for cell, found in both.items() if found}


def told(results: Results, data: str, profile: str) -> Iterator[str]:
    """What is known of a data set trained in one way: FedLC, logit adjustment, who is first, and readouts; nothing if
    FedLC was not run there."""
    at = cells(results, data, profile)
    gains = against(at, "fedlc", BASELINE)
    if not gains:
        return
    yield f"FedLC against FedAvg: {verdicts(gains)}."
    if adjusted := against(at, "fedla", "fedlc"):
        yield f"`fedla` against FedLC: {verdicts(adjusted)}."
    papers = first({cell: {m: of[m] for m in of if m in SEVEN} for cell, of in at.items()})
    everybody = {cell: {m: of[m] for m in of if READOUT not in m} for cell, of in at.items()}
    if papers:
        yield f"Highest mean of the paper's methods: {papers}."
    if (others := first(everybody)) not in (papers, ""):
        number = span([len(of) for of in everybody.values()], "d")
        yield f"Highest mean of the {number} methods run, without `{READOUT}`: {others}."
    yield from _always(at)
    yield from _read_out(at)


def _read_out(at: Cells) -> Iterator[str]:
    """What a readout gains on FedAvg's own model, and what it is combined with adds to that."""
    methods = dict.fromkeys(method for of in at.values() for method in of if READOUT in method)
    base, other = (READOUT, f"`{READOUT}`") if READOUT in methods else (BASELINE, "FedAvg")
    if READOUT in methods:
        found = against(at, READOUT, "fedlc")
        yield f"`{READOUT}` (FedAvg with a fitted last layer) against FedLC: {verdicts(found)}."
    for method in methods:
        if method != READOUT and (found := against(at, method, base)):
            yield f"`{method}` against {other}: {verdicts(found)}."


def first(at: Cells) -> str:
    """Who has the highest mean in which cells, over the seeds that all methods of a cell have; nothing if no cell has
    enough of them."""
    known = {cell: on_common_seeds(of) for cell, of in at.items()}
    known = {cell: means for cell, means in known.items() if len(means) >= FEWEST}
    if not known:
        return ""
    winners: dict[str, list[str]] = {}
    for cell, means in known.items():
        (best, most), (_, second), *_ = sorted(means.items(), key=lambda pair: -pair[1])
        winners.setdefault(f"`{best}`" if most - second >= LEAD else "nobody", []).append(named(cell))
    each = [f"{who} in {'all' if len(there) == len(known) else ', '.join(there)}" for who, there in winners.items()]
    common = many([len(set.intersection(*(set(values) for values in at[cell].values()))) for cell in known])
    return f"{listed(each)} ({common} in common)"


def _always(at: Cells) -> Iterator[str]:
    """Methods that are above FedAvg in every cell, if there are several."""
    methods = dict.fromkeys(m for of in at.values() for m in of if m not in (BASELINE, "fedlc"))
    gains = {method: against(at, method, BASELINE) for method in methods}
    above = {
        method: span([gain.mean for gain in found.values()], "+.1f")
        for method, found in gains.items()
        if len(found) == len(at) > 1 and all(gain.verdict == "above" for gain in found.values())
    }
    if above:
        listing = listed(f"`{method}` ({gain} points)" for method, gain in above.items())
        yield f"Above FedAvg in every split: {listing}."


def against_fedlc(results: Results, data: str) -> Iterator[str]:
    """The paper's methods that have a higher mean than FedLC in some cell, with every verdict."""
    at = cells(results, data)
    rivals = {method: against(at, method, "fedlc") for method in SEVEN if method not in (BASELINE, "fedlc")}
    ahead = {method: found for method, found in rivals.items() if any(gain.mean > 0 for gain in found.values())}
    if ahead:
        told = "; ".join(f"`{method}` {verdicts(found)}" for method, found in ahead.items())
        rest = [gain for method, found in rivals.items() if method not in ahead for gain in found.values()]
        others = f"; none of the paper's other methods is ahead there ({seeds(rest)})" if rest else ""
        yield f"Against FedLC: {told}{others}."
