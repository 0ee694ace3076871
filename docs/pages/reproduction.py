"""`docs/reproduction.md` and the pages in `docs/tables`, written only from published results."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.pages import (
    balanced,
    chosen,
    closing,
    depends,
    figure_page,
    front,
    holds,
    margins,
    mended,
    readouts,
    table_page,
)
from docs.pages.claims import DISTANCES, in_short
from fedskew.paper import TABLES
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import NOTHING
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import RULE

BEGIN, END = "<!-- results: written by `make reproduction` -->", "<!-- end of results -->"

_INTRODUCTION = """\
# The paper, reproduced

Does FedLC gain over FedAvg what its paper says? That depends on how clients are trained. This page begins with
CIFAR-10, what the gain depends on and which claims hold, and then goes through the paper's tables. Profiles such as
`usual` fill in [what the paper leaves open](#what-the-paper-leaves-open). Every figure was measured with this package:
see [where they come from](#where-the-figures-come-from).
"""

_MAP = """\
[The map](tables/map.md) has every cell and seed of this, changes one assumption at a time, and has FedLC's tau on other
data sets. [The paper's figures](tables/figures.md) have a page as well."""

_FAR = "[How far our figures are from the paper's](tables/distances.md), by data set and profile."

_SOURCES = """\
## Where the figures come from

`make reproduction` writes this page and those it links to from the runs in `results/paper/`, the tries in
`results/tuned/`, `results/tau/` and `results/readout/`, and the mended models in `results/repairs/`. Each run is one
line of JSON with all its fields, its hash, the partition's hash, the accuracy of every evaluated round, versions and
device; [some were done twice](tables/repeats.md). In the pages of the tables, the paper's figure follows ours in
brackets. Accuracy is that of the global model after the last round on the whole test set, in percent; ± is the standard
deviation over seeds (ddof 1).

`fedskew paper list` lists the tables and figures, `fedskew paper run table1 --cells cifar10 --seeds 1 --device cuda
--precision bf16` runs some of them, and `fedskew paper show table1 --format csv` prints every figure with its runs.
"""

_OPEN = """\
## What the paper leaves open

The paper does not state tau, the rule for classes that a client does not have, the number of local epochs for most
tables, the knobs of the other methods, or the exact network. A profile fills them in:
"""

_CHOSEN = """\
**Of the paper's methods only FedLC has a knob that was chosen**, in every profile but `tuned`: of 12 pairs of a tau and
a rule for missing classes, its default did best on held-out examples of CIFAR-10 under D(0.1), over the two settings
of [the map](tables/map.md) together, with one seed. With one epoch and no momentum alone, tau 0.1 is ahead of it there,
by 0.2 points. FedAvg has no knob of its own; [one section](#each-method-with-its-knob-chosen-on-held-out-examples)
gives six methods four tries each. No run of `tuned` is published.
"""

_CONTRADICTIONS = """\
The paper's own tables disagree where they overlap: FedAvg on CIFAR-10 under D(0.3) is 55.95 in table 1 and 60.18 in
table 7 (which table 1 has for D(0.5)), and under Q(5) 61.54 in table 7, 46.12 (E=1) and 75.81 (E=5) in table 5. Table 6
names neither data set nor skew; table 5 says 10 clients in its caption and 20 in the text. A difference from a printed
figure alone is therefore not a failure to reproduce; what can be compared is how methods rank against each other.

Of its Synthetic data the paper says that they mix both kinds of label skew. Ours are the recipe of Li et al. (2020):
each client has its own inputs, labelling model and size. Under one seed the three data sets have the same labelling
models and sizes, so they are not three independent findings.
"""


def reproduction(
    results: Results,
    figures: Path,
    repeats: Sequence[Result] = (),
    tuned: Results = NOTHING,
    repairs: Sequence[mended.Line] = (),
    fits: Sequence[Result] = (),
    taus: Sequence[Result] = (),
) -> dict[str, str]:
    """The text of each page by its name in `docs`. Pictures that lie in `figures` are shown; `repeats` are runs that
    may have been done again, `tuned` tries on held-out examples with the runs of what they chose, and `repairs` are of
    models of any of these runs. `fits` and `taus` are tries on held-out examples, with a readout and of FedLC's tau."""
    main = [_INTRODUCTION.rstrip(), *front.detail(results), *depends.section(results), _MAP, *holds.section(results)]
    main += [*balanced.section(results), "## Table by table", RULE, table_page.SUMMARY]
    for table in TABLES.values():
        main += table_page.summary(table, results)
    main += [_FAR, _OPEN.rstrip(), *_profiles(), _CHOSEN.rstrip(), _CONTRADICTIONS.rstrip()]
    main += [*closing.section(results), *mended.section(repairs, [*results, *tuned]), *chosen.section(results, tuned)]
    main += [_SOURCES.rstrip()]
    pages = {
        "reproduction": main,
        **{f"tables/{table.name}": table_page.page(table, results) for table in TABLES.values()},
        "tables/figures": figure_page.figures(results, figures),
        "tables/map": [*figure_page.around(results, figures), *depends.detail(results), *margins.section(taus)],
        "tables/gap": [
            "# The gap to IID data: methods that lack seeds, and what was tried",
            *closing.once(results),
            *readouts.tried(fits),
        ],
        "tables/distances": ["# How far from the paper's figures", *_distances(results)],
        "tables/repeats": ["# Repeated runs", *_repeats(results, repeats)],
    }
    return {f"{name}.md": "\n\n".join(parts) + "\n" for name, parts in pages.items()}


def _distances(results: Results) -> list[str]:
    """FedLC against FedAvg by data set and profile, and how far both are from the paper's; nothing if nothing was
    run."""
    lines = in_short(results, TABLES.values())
    how = (
        "For those who know the paper's tables: how far are our figures from the printed ones? A setting is a cell "
        "that we ran with FedAvg and FedLC, both for the same number of rounds; its figure is the mean accuracy of the "
        "last ten rounds. Differences are points, from the lowest to the highest setting; "
        "[verdicts](../measuring.md#seeds-and-verdicts) are over seeds. `200 of 400` rounds: shorter than the paper's."
    )
    return [how, "\n".join(as_markdown([*DISTANCES], lines))] if lines else []


def _profiles() -> Iterator[str]:
    yield "\n".join(f"- `{profile.name}`: {profile.about}." for profile in PROFILES.values())


def _repeats(results: Results, repeats: Sequence[Result]) -> Iterator[str]:
    """Runs that were done again, or whose longer form is among the results: which of them differ, and by how much."""
    known: dict[str, list[Result]] = {}
    for result in (*results, *repeats):
        known.setdefault(result.hash, []).append(result)
    again = [(first, other) for first, *others in known.values() for other in others]
    apart = [(first, other, most) for first, other in again if (most := _most_apart(first, other)) > 0]
    if again:
        many, differ = (len({first.hash for first, *_ in some}) for some in (again, apart))
        yield (
            f"{many} run{' is' if many == 1 else 's are'} among the results more than once: done again, or as a longer "
            f"run. In {many - differ} of them the accuracies of all rounds in common are equal (a longer run may have "
            f"resumed the shorter one)."
            + (
                " The others differ: a CPU and a GPU, and different engines, add in another order, and "
                "[Performance](../performance.md#does-a-gpu-run-repeat) has other reasons. Of two runs of one "
                "length the tables have the first:"
                if apart
                else ""
            )
        )
    if apart:
        yield "\n".join(_repeated(*found) for found in apart)


def _most_apart(one: Result, other: Result) -> float:
    """The largest difference in accuracy in a round that both evaluated, in points."""
    accuracies = dict(other.curve)
    return max((100 * abs(value - accuracies[round]) for round, value in one.curve if round in accuracies), default=0.0)


def _repeated(one: Result, other: Result, most: float) -> str:
    what = f"{one.short['algorithm']} on {one.short['title']}, E {one.run['local_epochs']}"
    told = [f"{each.rounds} rounds by `{each.summary['engine']}` to {_two(each.summary)}" for each in (one, other)]
    return f"- {one.hash}, {what}: at most {most:.2f} points apart; {told[0]}, {told[1]} (last round · last ten)."


def _two(summary: Mapping[str, Any]) -> str:
    return " · ".join(f"{100 * summary[name]:.2f}" for name in ("accuracy", "accuracy_last10"))


def between(text: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """A page with the part between two markers replaced."""
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not (begin and end):
        raise ValueError(f"the page has no part between {marks[0]} and {marks[1]}")
    return f"{head}{begin}\n{table}\n{end}{tail}"
