"""What our runs say of single methods, for the pages on choosing one and on equations."""

from collections.abc import Iterator

from docs.pages import closing, rivals
from docs.pages.chosen import chosen, variant
from docs.pages.claims import named
from fedskew.paper.trained import CELL
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE


def evidence(results: Results, tuned: Results) -> str:
    """A bullet for each thing to know when choosing a method for images."""
    closed, once = closing.closed(results), closing.closed(results, range(1))
    said = [*closing.best(closed), *closing.alone(closed, once), *rivals.against_fedlc(results, "cifar10")]
    said += [" ".join(told) for data in ("cifar100", "imagenet12", "svhn") if (told := [*rivals.first(results, data)])]
    return "\n".join(f"- {line}" for line in [*said, *_restricted(results, tuned)])


def _restricted(results: Results, tuned: Results) -> Iterator[str]:
    """FedRS with its default alpha, and with the one that held-out examples chose."""
    found = rivals.against(rivals.cells(results, "cifar10"), "fedrs", BASELINE)
    if not found:
        return
    kinds = [{c: gain for c, gain in found.items() if named(c)[0] == kind} for kind in "DQ"]
    told = "; ".join(rivals.verdicts(each) for each in kinds if each)
    told = f"`fedrs` with its default alpha against FedAvg on CIFAR-10 is {told}."
    for each in chosen(results, tuned):
        if each.method == "fedrs" and each.changed and each.gain:
            told += (
                f" Held-out examples of {named(CELL)} chose {variant(each.best)}; on the test set there, it is "
                f"{each.gain}, against the default."
            )
    yield told


def suppressed(results: Results) -> str:
    """FedVLS, and against it logit adjustment alone, which is one of its parts."""
    at = rivals.cells(results, "cifar10")
    over, part = (rivals.against(at, "fedvls", other) for other in (BASELINE, "fedla"))
    if not (over and part):
        return "We have not run it."
    return (
        f"In our runs on CIFAR-10 (profile `usual`), FedVLS against FedAvg is {rivals.verdicts(over)}. Against "
        f"`fedla`, logit adjustment alone, it is {rivals.verdicts(part)}."
    )
