"""FedLC against the other methods of tables 1 and 2 under the profile `usual`, in sentences."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs.pages.claims import by_seed, listed, named, on_common_seeds, span
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import EIGHT, SEVEN
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, VERDICTS, Difference, paired

_CLEAR = 1.0
"""Points from which a gain of one seed is named with its cell."""
_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"}
Cells = Mapping[str, Mapping[str, Mapping[int, float]]]


def cells(results: Results, data: str) -> Cells:
    """For each cell of a data set, the accuracy of each method by seed; mean of the last ten rounds, in percent."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for table in (TABLES["table1"], TABLES["table2"]):
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
    """What FedLC gains on a data set, which method is first in how many cells, and what combinations gain; nothing if
    nothing was run."""
    everything = cells(results, data)
    at = {cell: {method: of[method] for method in EIGHT if method in of} for cell, of in everything.items()}
    gains = against(at, "fedlc", BASELINE)
    if not gains:
        return
    clear = {cell: gain for cell, gain in gains.items() if gain.mean >= _CLEAR}
    rest = [gain.mean for cell, gain in gains.items() if cell not in clear]
    told = [f"{gain.mean:+.1f} at {named(cell)}" for cell, gain in clear.items()]
    told += [f"{span(rest, '+.1f')} in {'the other ' if clear else ''}{len(rest)} splits"] if rest else []
    decided = all(gain.half is not None for gain in gains.values())
    many = f"{seeds(gains.values())}{'' if decided else ', no verdict'}"
    yield f"On {_NAMES[data]} ({many}), FedLC's gains over FedAvg are {listed(told)}."
    yield from _ahead({cell: means for cell, of in at.items() if BASELINE in (means := on_common_seeds(of))})
    joined = dict.fromkeys(method for of in everything.values() for method in of if "+" in method)
    if gained := {method: against(everything, method, BASELINE) for method in joined}:
        told = [
            f"`{method}` gains {span([gain.mean for gain in there.values()], '+.1f')} in {_splits(there)}"
            for method, there in gained.items()
        ]
        yield f"{listed(told)}."


def _ahead(at: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Which method has the highest mean in most cells, from the means over common seeds."""
    best = [max(means, key=lambda method: means[method]) for means in at.values()]
    winner = max(best, key=best.count, default=BASELINE)
    won = [means for means, method in zip(at.values(), best, strict=True) if method == winner]
    if at and len(won) <= len(at) / 2:
        yield f"Of the paper's methods and `fedla`, none is first there in more than half of the {len(at)} splits."
    elif winner != BASELINE:
        over = [means[winner] - means[BASELINE] for means in won]
        next_to = [means[winner] - max(mean for method, mean in means.items() if method != winner) for means in won]
        yield (
            f"Of the paper's methods and `fedla`, `{winner}` is first there in {len(won)} of {len(at)} splits, "
            f"{span(over, '+.1f')} over FedAvg and {span(next_to, '+.1f')} over the next one."
        )


def _splits(found: Mapping[str, Any]) -> str:
    return ", ".join(map(named, found)) if len(found) < 4 else f"{len(found)} splits"


def seeds(gains: Iterable[Difference]) -> str:
    """`one seed`, `2 to 3 seeds`"""
    numbers = [gain.seeds for gain in gains]
    return "one seed" if max(numbers) == 1 else f"{span(numbers, 'd')} seeds"
