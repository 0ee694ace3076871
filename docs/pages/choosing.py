"""What our runs say of single methods: a page, and what the page on equations says of FedVLS."""

from collections.abc import Iterator

from docs.pages import balanced, closing, rivals
from docs.pages.chosen import chosen, variant
from docs.pages.claims import by_profile, counted, seeds, span, verdicts
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import end
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Results
from fedskew.runs.verdict import BASELINE, Difference, paired

TITLE = "Verdicts on each data set"


def page(results: Results, tuned: Results) -> str:
    """Who is above whom on each data set."""
    parts = (
        f"# {TITLE}",
        "Who is above whom in our runs, behind what [Which method](../which-method.md) says. Verdicts are [over seeds]"
        "(../measuring.md#seeds-and-verdicts); one seed, of which some methods have no more, decides nothing. Points "
        "are of the mean accuracy of the last ten rounds, from the lowest to the highest split. A highest mean is over "
        f"the seeds that all methods have; a lead under {rivals.LEAD:g} points is nobody's.",
        "All clients train in every round, for one local epoch: 20 clients for 200 rounds (SVHN 100), on Synthetic 100 "
        "for 300. Profile `usual` is momentum, and crops and mirror images where a mirror image shows the same "
        "class; `stated` has neither ([all profiles](../reproduction.md#what-the-paper-leaves-open)).",
        evidence(results, tuned),
    )
    return "\n\n".join(parts) + "\n"


def evidence(results: Results, tuned: Results) -> str:
    """A table for each data set and way of training."""
    parts = list[str]()
    for data, profiles in rivals.PLACES.items():
        for profile in profiles:
            if rows := [*rivals.rows(results, data, profile), *_also(results, tuned, data)]:
                rows += rivals.firsts(results, data, profile)
                parts.append(f"## {rivals.NAMES[data]}, profile `{profile}`")
                parts.append("\n".join(as_markdown(("comparison", "splits", "points", "seeds"), rows)))
                if data == "cifar10":
                    parts += closing.alone(closing.closed(results), closing.closed(results, range(1)))
    return "\n\n".join(parts)


def _also(results: Results, tuned: Results, data: str) -> Iterator[list[str]]:
    """What is known of one data set alone."""
    if data == "cifar10":
        yield from [*rivals.against_fedlc(results, data), *_restricted(results, tuned)]
    if data == "svhn":
        rows = next(rows for profile, rows in by_profile("table1", results) if profile.name == "usual")
        if gains := balanced.gains(results, rows, "fedlc", "balanced_accuracy"):
            yield rivals.row("FedLC against FedAvg, balanced accuracy in the last round", gains)
    if data == "imagenet12":
        for method, rounds, found in longest(results):
            yield rivals.row(f"`{method}` against FedAvg after {rounds} rounds", found)


def longest(results: Results) -> Iterator[tuple[str, int, dict[str, Difference]]]:
    """What is left of a method's gain in runs of more rounds than table 3 has, and after how many."""
    table, usual = TABLES["table3"], Choice(profile=PROFILES["usual"])
    for cell in table.cells:
        found: dict[int, dict[str, dict[int, float]]] = {}
        for method in table.methods:
            for one in results.answering(table.run(cell, method, usual).model_dump()):
                if one.rounds > table.full_rounds(cell) and not one.diverged:
                    found.setdefault(one.rounds, {}).setdefault(method, {})[one.seed] = end(one)
        for rounds, at in found.items():
            for method in at:
                if method != BASELINE and (gain := paired(at[method], at.get(BASELINE, {}))):
                    yield method, rounds, {cell: gain}


def _restricted(results: Results, tuned: Results) -> Iterator[list[str]]:
    """FedRS with its default alpha, and with the one that held-out examples chose."""
    if found := rivals.against(rivals.cells(results, "cifar10"), "fedrs", BASELINE):
        yield rivals.row("`fedrs` against FedAvg", found)
        for each in chosen(results, tuned):
            if each.method == "fedrs" and each.changed and each.gain:
                yield rivals.row(
                    f"{variant(each.best)}, chosen on held-out examples, against `fedrs`", {CELL: each.gain}
                )


def suppressed(results: Results) -> str:
    """FedVLS, and against it logit adjustment alone, which is one of its parts."""
    at = rivals.cells(results, "cifar10")
    over, part = (rivals.against(at, "fedvls", other) for other in (BASELINE, "fedla"))
    if not (over and part):
        return "We have not run it."
    said = (
        f"In our runs on CIFAR-10 (profile `usual`), FedVLS against FedAvg is {verdicts(over)}. Against "
        f"`fedla`, logit adjustment alone, it is {verdicts(part)}."
    )
    linear = [rivals.cells(results, "synthetic", profile) for profile in rivals.PLACES["synthetic"]]
    gains = [gain for known in linear for gain in rivals.against(known, "fedvls", BASELINE).values()]
    ends = [end for known in linear for of in known.values() for end in of.get("fedvls", {}).values()]
    if gains:
        said += (
            f" On Synthetic, over both profiles, it is {counted(gains)} ({span([gain.mean for gain in gains], '+.1f')} "
            f"points, {seeds(gains)}), with accuracies of {span(ends, '.0f')} %."
        )
    return said
