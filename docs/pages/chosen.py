"""Methods with a knob chosen on held-out examples: the tries, and what the chosen ones reach on the test set."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from docs.pages.closing import SETTING
from fedskew.core.spec import name_in
from fedskew.paper import mapped
from fedskew.paper.choice import Choice
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from fedskew.runs.verdict import BASELINE, VERDICTS, Difference, paired
from fedskew.simulation.tune import VALIDATION

TRY_ROUNDS = 100
DEFAULT, OWN = "default", "own knob"


@dataclass(frozen=True)
class Chosen:
    """The tries of a method, its default first, and by seed what the default and the chosen try reach on the test set
    (mean of the last ten rounds, in percent)."""

    method: str
    tries: Sequence[Result]
    default: Mapping[int, float | None]
    tested: Mapping[int, float | None]

    @property
    def best(self) -> Result:
        """The try with the highest accuracy on held-out examples, on a tie the first; one that diverged is never it."""
        return max(self.tries, key=lambda one: 0.0 if one.diverged else one.summary["validation_accuracy"])

    @property
    def changed(self) -> bool:
        return variant(self.best) != DEFAULT

    @property
    def gain(self) -> Difference | None:
        """The chosen variant minus the default."""
        return paired(self.tested, self.default)


def variant(result: Result) -> str:
    """What a run of the cell changes: a spec such as `fedrs:alpha=0.9`, and its `training`; or nothing."""
    short = result.short["algorithm"]
    return ", ".join([*([] if short == method_of(result) else [f"`{short}`"]), *training(result)]) or DEFAULT


def training(result: Result) -> list[str]:
    """`lr 0.03`, `cosine rate`: where a run's rate is not the default."""
    usual, rate, schedule = _run(BASELINE), result.run["lr"], result.run["lr_schedule"]
    told = [f"lr {rate:g}"] if rate != usual.lr else []
    return told + ([f"{name_in(schedule)} rate"] if schedule != usual.lr_schedule else [])


def told(result: Result) -> str:
    """A run's spec, and its `training`: `` `fedlc`, lr 0.03 ``"""
    return ", ".join([f"`{result.short['algorithm']}`", *training(result)])


def method_of(result: Result) -> str:
    """A run's method without arguments. A server that steps with SGD is FedAvg with a longer or shorter step."""
    parts = [part.partition(":") for part in result.short["algorithm"].split("+")]
    names = [BASELINE if rest.startswith("server=sgd") else name for name, _, rest in parts]
    return "+".join(names)


def _run(method: str) -> Run:
    return mapped(CELL).run(CELL, method, Choice(profile=SETTING.profile))


def chosen(results: Results, tuned: Results) -> list[Chosen]:
    """Every method with tries in the cell; runs of defaults and choices may be in either."""
    held: dict[str, list[Result]] = {}
    asked = {"partition": _run(BASELINE).partition, "validation": VALIDATION, "rounds": TRY_ROUNDS}
    for one in sorted(tuned, key=lambda each: each.hash):
        if asked.items() <= one.run.items():
            held.setdefault(method_of(one), []).append(one)
    return [_chosen(method, held[method], results, tuned) for method in sorted(held)]


def _chosen(method: str, held: Sequence[Result], results: Results, tuned: Results) -> Chosen:
    tries = sorted(held, key=lambda one: variant(one) != DEFAULT)
    best = Chosen(method, tries, {}, {}).best
    plain, asked = _run(method).model_dump(), {**best.run, "validation": 0.0}
    known = results.only(best.precision), tuned.only(best.precision)
    default, tested = (
        {one.seed: _reached(one) for some in known for one in some.answering(run) if one.rounds == SETTING.rounds}
        for run in (plain, asked)
    )
    return Chosen(method, tries, {seed: default[seed] for seed in default if seed in tested}, tested)


def _reached(one: Result) -> float | None:
    return None if one.diverged else 100 * one.summary["accuracy_last10"]


def section(results: Results, tuned: Results) -> Iterator[str]:
    """Both tables, and what they say; nothing if nothing was tried."""
    found = chosen(results, tuned)
    if not found:
        return
    yield "## Each method with its knob chosen on held-out examples"
    yield (
        f"Every method got {_number(found)} tries at {CELL} with {SETTING.name}: its default, another learning rate, a "
        "falling rate, and a knob of its own (for FedAvg the server's step). A tenth of the training examples was held "
        f"out, and the table has the accuracy on them after {TRY_ROUNDS} rounds, in percent; the chosen try is bold. "
        "**One cell and one seed chose**: tries a point apart are hardly different, and other cells may want other "
        "knobs."
    )
    shared = {_column(one) for each in found for one in each.tries} - {DEFAULT, OWN}
    columns = [DEFAULT, *sorted(shared), OWN]
    yield "\n".join(as_markdown(["method", *columns], [_tried(each, columns) for each in found]))
    yield from _not_searched(found, results)
    yield from _on_the_test_set(found)


def _not_searched(found: Sequence[Chosen], results: Results) -> Iterator[str]:
    """FedAvg trained in a way that was not among the tries, if it did better on the same held-out examples."""
    base = next((each.best for each in found if each.method == BASELINE), None)
    if base is None:
        return
    same = {name: base.run[name] for name in ("dataset", "partition", "algorithm", "seed", "rounds", "validation")}
    others = [one for one in results if same.items() <= one.run.items() and not one.diverged]
    better = [one for one in others if one.summary["validation_accuracy"] > base.summary["validation_accuracy"]]
    for one in sorted(better, key=lambda one: -one.summary["validation_accuracy"])[:1]:
        yield (
            f"Momentum and augmentation were not searched. In [the map](tables/map.md), FedAvg with momentum "
            f"{one.run['momentum']:g}, augmentation {one.run['augment']} and lr {one.run['lr']:g} has "
            f"{100 * one.summary['validation_accuracy']:.2f} on the same held-out examples after as many rounds, above "
            "every try of FedAvg."
        )


def _number(found: Sequence[Chosen]) -> str:
    numbers = sorted({len(each.tries) for each in found})
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def _column(one: Result) -> str:
    """The heads are the changes that several methods share, and one for each method's own knob."""
    return OWN if variant(one).startswith("`") else variant(one)


def _tried(each: Chosen, columns: Sequence[str]) -> list[str]:
    at = {_column(one): _accuracy(one, one is each.best) for one in each.tries}
    return [f"`{each.method}`", *(at.get(column, "-") for column in columns)]


def _accuracy(one: Result, best: bool) -> str:
    shown = "diverged" if one.diverged else f"{100 * one.summary['validation_accuracy']:.2f}"
    shown = f"**{shown}**" if best else shown
    return f"{variant(one)} {shown}" if _column(one) == OWN else shown


def _on_the_test_set(found: Sequence[Chosen]) -> Iterator[str]:
    known = [each for each in found if each.gain]
    if not known:
        return
    base = next((each for each in known if each.method == BASELINE), None)
    yield (
        f"On the test set, with all training examples and {SETTING.rounds} rounds: means of the last ten rounds over "
        "the seeds that both variants have, and differences by the rule above. The seed that chose is one of them."
    )
    heads = ["method", "chosen", "default", "chosen", "chosen against default", "against FedAvg's chosen variant"]
    yield "\n".join(as_markdown(heads, [_row(each, base) for each in known]))
    yield " ".join(_sentences(known, base))


def _row(each: Chosen, base: Chosen | None) -> list[str]:
    pairs = [(value, each.tested.get(seed)) for seed, value in each.default.items()]
    both = [(plain, tested) for plain, tested in pairs if plain is not None and tested is not None]
    means = [f"{statistics.fmean(values):.2f}" for values in zip(*both, strict=True)]
    over = paired(each.tested, base.tested) if base is not None and each is not base else None
    return [f"`{each.method}`", variant(each.best), *means, str(each.gain) if each.changed else "-", str(over or "-")]


def _sentences(known: Sequence[Chosen], base: Chosen | None) -> Iterator[str]:
    changed = [(each, gain) for each in known if each.changed and (gain := each.gain)]
    if same := [f"`{each.method}`" for each in known if not each.changed]:
        yield f"The default was chosen for {', '.join(same)}."
    if changed:
        words = Counter(gain.verdict for _, gain in changed)
        counted = ", ".join(f"{word} in {words[word]}" for word in VERDICTS if words[word])
        told = ", ".join(f"`{each.method}` {gain.mean:+.1f} with {variant(each.best)}" for each, gain in changed)
        yield f"Elsewhere the chosen variant against the default is {counted} of {len(changed)}: {told}."
    fedlc = next((each for each in known if each.method == "fedlc"), None)
    gains = base and fedlc and [paired(fedlc.tested, base.tested), paired(fedlc.default, base.default)]
    if gains and gains[0] and gains[1]:
        yield f"FedLC against FedAvg with both chosen is {gains[0]}; with both at their defaults, {gains[1]}."


def fedlc_over_fedavg(results: Results, tuned: Results) -> Difference | None:
    """What FedLC gains on the test set if both are as held-out examples chose them."""
    found = {each.method: each for each in chosen(results, tuned)}
    return paired(found["fedlc"].tested, found[BASELINE].tested) if {"fedlc", BASELINE} <= found.keys() else None
