"""FedLC against the other methods of tables 1 to 3 under the profile `usual`, in sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from docs.pages.claims import by_seed, listed, named, on_common_seeds, span
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import EIGHT, SEVEN
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, VERDICTS, Difference, paired

_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "imagenet12": "12 classes of ImageNet"}
Cells = Mapping[str, Mapping[str, Mapping[int, float]]]


def cells(results: Results, data: str) -> Cells:
    """For each cell of a data set, the accuracy of each method by seed; mean of the last ten rounds, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for table in (TABLES[name] for name in ("table1", "table2", "table3")):
        there = tuple(cell for cell in table.cells if cell.startswith(f"{data}/"))
        for row in table.rows(results, Choice(cells=there, profile=PROFILES["usual"])) if there else ():
            if row["ours"] and not row["ours"]["diverged"]:
                found.setdefault(row["cell"], {})[row["method"]] = by_seed(row["ours"])
    return found


def against(at: Cells, method: str, other: str) -> dict[str, Difference]:
    """A method minus another in every cell that has both, over the seeds that both have."""
    both = {cell: paired(of[method], of[other]) for cell, of in at.items() if method in of and other in of}
    return {cell: found for cell, found in both.items() if found}


def verdicts(found: Mapping[str, Difference]) -> str:
    """`above in Q(6), Q(8) and tied in Q(4) (+0.1 to +1.5 points, 3 seeds)`"""
    at = {word: [named(cell) for cell, gain in found.items() if gain.verdict == word] for word in VERDICTS}
    told = [f"{word} in {', '.join(there)}" for word, there in at.items() if there]
    gains = span([gain.mean for gain in found.values()], "+.1f")
    return f"{listed(told)} ({gains} points, {seeds(found.values())})"


def against_fedlc(results: Results, data: str) -> Iterator[str]:
    """The paper's methods that have a higher mean than FedLC in some cell, with every verdict."""
    at = cells(results, data)
    rivals = {method: against(at, method, "fedlc") for method in SEVEN if method not in (BASELINE, "fedlc")}
    ahead = {method: found for method, found in rivals.items() if any(gain.mean > 0 for gain in found.values())}
    if ahead:
        told = "; ".join(f"`{method}` is {verdicts(found)}" for method, found in ahead.items())
        rest = [gain for method, found in rivals.items() if method not in ahead for gain in found.values()]
        others = f"; none of the paper's other methods is ahead in these splits ({seeds(rest)})" if rest else ""
        yield f"Against FedLC on {_NAMES[data]}, {told}{others}."


def first(results: Results, data: str) -> Iterator[str]:
    """FedLC against FedAvg on a data set, which method is first in how many cells, and what combinations gain; nothing
    if nothing was run."""
    everything = cells(results, data)
    at = {cell: {method: of[method] for method in EIGHT if method in of} for cell, of in everything.items()}
    gains = against(at, "fedlc", BASELINE)
    if not gains:
        return
    yield f"On {_NAMES[data]}, FedLC against FedAvg is {verdicts(gains)}."
    yield from _ahead({cell: of for cell, of in at.items() if BASELINE in on_common_seeds(of)})
    joined = dict.fromkeys(method for of in everything.values() for method in of if "+" in method)
    if gained := {method: against(everything, method, BASELINE) for method in joined}:
        told = [
            f"`{method}` gains {span([gain.mean for gain in there.values()], '+.1f')} in {_splits(there)} "
            f"({seeds(there.values())})"
            for method, there in gained.items()
        ]
        yield f"{listed(told)}."


def _ahead(at: Cells) -> Iterator[str]:
    """Which method has the highest mean in most cells, over the seeds that all methods of a cell have."""
    if not at:
        return
    means = [on_common_seeds(of) for of in at.values()]
    common = _many([len(set.intersection(*(set(values) for values in of.values()))) for of in at.values()])
    best = [max(of, key=lambda method: of[method]) for of in means]
    winner = max(best, key=best.count)
    won = [of for of, method in zip(means, best, strict=True) if method == winner]
    if len(won) <= len(at) / 2:
        yield (
            f"Of the paper's methods and `fedla`, none is first there in more than half of the {len(at)} splits "
            f"({common} in common)."
        )
    elif winner != BASELINE:
        over = [of[winner] - of[BASELINE] for of in won]
        next_to = [of[winner] - max(mean for method, mean in of.items() if method != winner) for of in won]
        yield (
            f"Of the paper's methods and `fedla`, `{winner}` is first there in {len(won)} of {len(at)} splits, "
            f"{span(over, '+.1f')} over FedAvg and {span(next_to, '+.1f')} over the next one ({common} in common)."
        )


def _splits(found: Mapping[str, Any]) -> str:
    return ", ".join(map(named, found)) if len(found) < 4 else f"{len(found)} splits"


def seeds(gains: Iterable[Difference]) -> str:
    return _many([gain.seeds for gain in gains])


def _many(numbers: Sequence[int]) -> str:
    """`one seed`, `2 to 3 seeds`"""
    return "one seed" if max(numbers) == 1 else f"{span(numbers, 'd')} seeds"
