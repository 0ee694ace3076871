"""What our runs say of single methods, for the pages on choosing one and on equations."""

from collections.abc import Iterator

from docs.pages import balanced, closing, rivals
from docs.pages.chosen import chosen, variant
from docs.pages.claims import by_profile, listed, named, seeds, verdicts
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import end
from fedskew.paper.trained import CELL
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, paired


def evidence(results: Results, tuned: Results) -> str:
    """A list for each data set and way of training."""
    parts = list[str]()
    for data, profiles in rivals.PLACES.items():
        for profile in profiles:
            if said := [*rivals.told(results, data, profile), *_also(results, tuned, data)]:
                parts.append(f"### {rivals.NAMES[data]}, profile `{profile}`")
                parts.append("\n".join(f"- {line}" for line in said))
    return "\n\n".join(parts)


def _also(results: Results, tuned: Results, data: str) -> Iterator[str]:
    """What is known of one data set alone."""
    if data == "cifar10":
        closed, once = closing.closed(results), closing.closed(results, range(1))
        yield from [*rivals.against_fedlc(results, data), *_restricted(results, tuned)]
        yield from [*closing.best(closed), *closing.alone(closed, once)]
    if data == "svhn":
        rows = next(rows for profile, rows in by_profile("table1", results) if profile.name == "usual")
        if gains := balanced.gains(results, rows, "fedlc", "balanced_accuracy"):
            yield f"FedLC against FedAvg by balanced accuracy in the last round: {verdicts(gains)}."
    if data == "imagenet12":
        yield from _longest(results)


def _longest(results: Results) -> Iterator[str]:
    """What is left of gains in runs of more rounds than table 3 has."""
    table, usual = TABLES["table3"], Choice(profile=PROFILES["usual"])
    for cell in table.cells:
        found: dict[int, dict[str, dict[int, float]]] = {}
        for method in table.methods:
            for one in results.answering(table.run(cell, method, usual).model_dump()):
                if one.rounds > table.full_rounds(cell) and not one.diverged:
                    found.setdefault(one.rounds, {}).setdefault(method, {})[one.seed] = end(one)
        for rounds, at in found.items():
            pairs = {m: gain for m in at if m != BASELINE and (gain := paired(at[m], at.get(BASELINE, {})))}
            if pairs:
                told = listed(f"`{method}` {gain.mean:+.1f}" for method, gain in pairs.items())
                yield f"After {rounds} rounds in {named(cell)}, over FedAvg: {told} ({seeds(pairs.values())})."


def _restricted(results: Results, tuned: Results) -> Iterator[str]:
    """FedRS with its default alpha, and with the one that held-out examples chose."""
    found = rivals.against(rivals.cells(results, "cifar10"), "fedrs", BASELINE)
    if not found:
        return
    kinds = [{c: gain for c, gain in found.items() if named(c)[0] == kind} for kind in "DQ"]
    told = "; ".join(verdicts(each) for each in kinds if each)
    told = f"`fedrs` with its default alpha against FedAvg: {told}."
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
        f"In our runs on CIFAR-10 (profile `usual`), FedVLS against FedAvg is {verdicts(over)}. Against "
        f"`fedla`, logit adjustment alone, it is {verdicts(part)}."
    )
