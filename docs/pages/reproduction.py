"""`docs/reproduction.md`, written only from published results."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.pages import chosen, closing, depends, holds, margins, mended, readouts
from docs.pages.claims import Claim, by_profile, claims, in_short
from fedskew.paper import FIGURES, TABLES, formats, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.formats import behind
from fedskew.paper.map import TAUS, Map
from fedskew.paper.map_text import sentences
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import NOTHING, Table
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import RULE

FIGURE_FOLDER = "figures"
BEGIN, END = "<!-- results: written by `make reproduction` -->", "<!-- end of results -->"

_INTRODUCTION = """\
# The paper, reproduced

Every figure on this page was measured with this package. `make reproduction` writes the page from the runs in
`results/paper/`, the tries in `results/tuned/`, `results/tau/` and `results/readout/`, and the mended models in
`results/repairs/`. Each run is one line of JSON with all its fields, its hash, the partition's hash, the accuracy of
every evaluated round, versions and device. In tables, the paper's figure follows ours in brackets. Accuracy is that of
the global model after the last round on the whole test set, in percent; ± is the standard deviation over seeds (ddof
1).

`fedskew paper list` lists the tables and figures, `fedskew paper run table1 --cells cifar10 --seeds 1 --device cuda
--precision bf16` runs some of them, and `fedskew paper show table1 --format csv` prints every figure with its runs.
"""

_OPEN = """\
## What the paper leaves open

The paper does not state tau, the rule for classes that a client does not have, the number of local epochs for most
tables, the knobs of the other methods, or the exact network. A profile fills them in:
"""

_CONTRADICTIONS = """\
The paper's own tables disagree where they overlap: FedAvg on CIFAR-10 under D(0.3) is 55.95 in table 1 and 60.18 in
table 7, and under Q(5) 61.54 in table 7, 46.12 (E=1) and 75.81 (E=5) in table 5. Table 6 names neither data set nor
skew; table 5 says 10 clients in its caption and 20 in the text. A difference from a printed figure alone is therefore
not a failure to reproduce; what can be compared is how methods rank against each other.
"""


_REMARKS = {
    "figure5": (
        "Twelve classes of Tiny-ImageNet, 6,000 images for training and 600 for testing, so that one standard error of "
        "an accuracy of 25 % is 1.8 points. The paper names neither its classes nor its images."
    )
}


def reproduction(
    results: Results,
    figures: Path,
    repeats: Sequence[Result] = (),
    tuned: Results = NOTHING,
    repairs: Sequence[mended.Line] = (),
    fits: Sequence[Result] = (),
    taus: Sequence[Result] = (),
) -> str:
    """The whole page. Pictures that lie in `figures` are shown; `repeats` are runs that were done again, `tuned` tries
    on held-out examples with the runs of what they chose, and `repairs` are of models of any of these runs. `fits` and
    `taus` are tries on held-out examples, with a readout and of FedLC's tau."""
    parts = [_INTRODUCTION.rstrip(), *depends.section(results), *holds.section(results), *_short(results)]
    parts += [*closing.section(results), *readouts.tried(fits), *mended.section(repairs, [*results, *tuned])]
    parts += [*chosen.section(results, tuned), *margins.section(taus)]
    parts += [_OPEN.rstrip(), *_profiles(), _CONTRADICTIONS.rstrip()]
    parts += [*_map(results, figures), *_every(results)]
    for table in TABLES.values():
        parts += _table(table, results)
    parts += [*_figures(results, figures), *_repeats(results, repeats), *_extent(results)]
    return "\n\n".join(parts) + "\n"


def _short(results: Results) -> list[str]:
    """How results are compared, and a summary; nothing if nothing was run."""
    lines = in_short(results, TABLES.values())
    how = (
        f"This section compares FedLC with FedAvg wherever both were run in the same way. {RULE} In runs of ten rounds "
        "or fewer, the last round stands for that mean."
    )
    return ["## In short", how, "\n".join(f"- {line}" for line in lines)] if lines else []


def _profiles() -> Iterator[str]:
    yield "\n".join(f"- `{profile.name}`: {profile.about}." for profile in PROFILES.values())


def _map(results: Results, figures: Path) -> Iterator[str]:
    """The map around one cell, with the values of tau that have been run."""
    asked = Map(mapped(CELL), CELL)
    rows = asked.rows(results, Choice())
    if not rows:
        return
    taus = asked.known_taus(Choice(), results.only(rows[0]["precision"]))
    absent = [f"{tau:g}" for tau in TAUS if tau not in taus]
    yield f"## What FedLC's gain depends on: the map around {CELL}"
    yield (
        "These runs are shortened: 100 rounds, or 20 with five or ten local epochs. A tenth of the training examples "
        "is held out and clients train on the rest; the margin is chosen on the held-out examples, and the test set "
        f"is only reported. Device {rows[0]['device']}, {rows[0]['precision']}. Each setting has one seed, which by "
        "the rule above decides nothing. Accuracies below are means of the last ten rounds."
        + (f" Of the usual values of tau, {', '.join(absent)} were not run." if absent else "")
    )
    if (figures / "map.png").exists():
        yield f"![FedLC minus FedAvg over the assumptions]({FIGURE_FOLDER}/map.png)"
    yield "\n".join(f"- {line}" for line in sentences(rows))
    yield _map_table(rows)
    shown = ",".join(f"{tau:g}" for tau in taus)
    yield f"`fedskew paper map --cell {CELL} --taus {shown} --device cuda --precision bf16` does these runs."


def _map_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        test = ["diverged", row["diverged"]] if row["test"] is None else [f"{row[n]:.2f}" for n in ("test", "last_ten")]
        shown = [row["setting"], f"`{row['algorithm']}`", f"{row['validation']:.2f}", *test, row["rounds"], row["hash"]]
        lines.append([str(value) for value in shown])
    heads = ("setting", "method", "held out %", "test %", "last ten %", "rounds", "run")
    return "\n".join(as_markdown(heads, lines))


def _table(table: Table, results: Results) -> Iterator[str]:
    yield f"## Table {table.name.removeprefix('table')}: {table.title}"
    yield (
        "The paper does not state the following, so we assume it unless a profile says otherwise: "
        + "; ".join(table.assumed)
        + ". Batch norm, "
        "Dirichlet sizes balanced, clients weighted by their examples." + (f" {table.remark}" if table.remark else "")
    )
    some = False
    for profile, rows in by_profile(table.name, results):
        if not any(row["ours"] for row in rows):
            continue
        some = True
        yield from _shown(table, rows, f"Profile `{profile.name}`")
        for rounds in other_lengths(rows):
            short = table.rows(results, Choice(profile=profile, rounds=rounds))
            yield from _shown(table, short, f"Profile `{profile.name}`, {rounds} rounds")
    if not some:
        yield "None of this has been run yet."


def _shown(table: Table, rows: Sequence[dict[str, Any]], title: str) -> Iterator[str]:
    """The figures and what they say of the claims, for each data set that was run; those that were not are named with
    the last one."""
    ran = list(dict.fromkeys(_data(table, row["cell"]) for row in rows if row["ours"]))
    for data in ran:
        elsewhere = {*ran} - {data} if data == ran[-1] else {_data(table, cell) for cell in table.cells} - {data}
        here = [row for row in rows if _data(table, row["cell"]) not in elsewhere]
        yield f"### {title}" + (f", {data}" if len(ran) > 1 else "")
        yield formats.markdown(here).rstrip()
        if said := list(claims(table, here)):
            yield "\n".join(f"- {claim}" for claim in said)


def _data(table: Table, cell: str) -> str:
    return str({**table.fields, **table.cells[cell]}["dataset"]).partition(":")[0]


def other_lengths(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Lengths of runs that exist but that the rows do not show."""
    return sorted({rounds for row in rows if row["ours"] for rounds in row["ours"]["other_lengths"]})


def _figures(results: Results, figures: Path) -> Iterator[str]:
    yield "## Figures"
    for figure in FIGURES.values():
        if (figures / f"{figure.name}.png").exists():
            yield f"### Figure {figure.name.removeprefix('figure')}: {figure.title}"
            yield f"![{figure.title}]({FIGURE_FOLDER}/{figure.name}.png)"
            if remark := _REMARKS.get(figure.name):
                yield remark
            rows = figure.rows(results) if figure.runs() else []
            if rows and (lines := figure.lines(rows)):
                yield "\n".join(["```text", *lines, "```"])
                yield "\n".join(behind(rows, results))
        else:
            yield f"### Figure {figure.name.removeprefix('figure')}: {figure.title}"
            yield f"Not measured yet; `fedskew paper run {figure.name}` measures it."


def _repeats(results: Results, repeats: Sequence[Result]) -> Iterator[str]:
    """Runs that were repeated, next to what the page shows."""
    known = {(result.hash, result.rounds): result for result in results}
    lines = []
    for other in repeats:
        if shown := known.get((other.hash, other.rounds)):
            figures = [_two(one.summary) for one in (shown, other)]
            what = f"{shown.short['algorithm']} on {shown.short['title']}, E {shown.run['local_epochs']}"
            lines.append(f"- {shown.hash}, {what}, {shown.rounds} rounds: {figures[0]} on this page, {figures[1]}.")
    if lines:
        yield "## Repeated runs"
        yield "Last round · mean of the last ten rounds of one run; docs/performance.md explains why they can differ."
        yield "\n".join(lines)


def _two(summary: Mapping[str, Any]) -> str:
    return " · ".join(f"{100 * summary[name]:.2f}" for name in ("accuracy", "accuracy_last10"))


def _extent(results: Results) -> Iterator[str]:
    """How many pairs of cell and method have a run, by table and profile."""
    yield "## How much has been run"
    lines = []
    for table in TABLES.values():
        said = []
        pairs = len(table.cells) * len(table.methods)
        for profile, rows in by_profile(table.name, results):
            done = [row["ours"] for row in rows if row["ours"] and row["method"] in table.methods]
            if done:
                single = sum(len(ours["seeds"]) == 1 for ours in done)
                seeds = f", {single} of them with one seed" if single else ""
                said.append(f"{len(done)} of {pairs} under `{profile.name}`{seeds}")
        lines.append(f"- {table.name}: {'; '.join(said) or 'nothing'}")
    yield "Pairs of cell and method that have a run (the paper has five seeds for each):"
    yield "\n".join(lines)


def _every(results: Results) -> Iterator[str]:
    """A line for every cell in which FedAvg and FedLC were run: the last round and, after the dot, the last ten."""
    methods = ("FedAvg", "FedRS", "FedLC", "logit adj.")
    heads = ("cell", "profile", "rounds", *methods, "FedLC against FedAvg", "paper: FedAvg, FedLC")
    lines = []
    for table in TABLES.values():
        for profile, rows in by_profile(table.name, results):
            for claim in claims(table, rows):
                at = {row["method"]: row for row in rows if row["cell"] == claim.cell and row["ours"]}
                lines.append(_line(f"{table.name}: {claim.cell}", profile.name, at, claim))
    if lines:
        yield "## FedLC and FedAvg in every cell"
        yield "Accuracy after the last round · mean of the last ten rounds, in percent."
        yield "\n".join(as_markdown(heads, lines))


def _line(cell: str, profile: str, at: dict[str, dict[str, Any]], claim: Claim) -> list[str]:
    """Leaves out methods whose runs differ in length from FedLC's; names the seeds if they differ."""
    ours = at["fedlc"]["ours"]
    said = str(claim.against("fedavg")) if claim.compared else "not compared"
    shown = [_plain(at.get(method), ours) for method in ("fedavg", "fedrs", "fedlc", "fedla")]
    printed = [at[method]["printed"]["mean"] for method in ("fedavg", "fedlc")]
    rounds = f"{ours['rounds']}" + (" (shortened)" if ours["shortened"] else "")
    theirs = ", ".join("-" if mean is None else f"{mean:.2f}" for mean in printed)
    return [cell, profile, rounds, *shown, said, theirs]


def _plain(row: dict[str, Any] | None, like: dict[str, Any]) -> str:
    if row is None or any(row["ours"][name] != like[name] for name in ("rounds", "precision")):
        return "-"
    seeds = row["ours"]["seeds"]
    told = "" if seeds == like["seeds"] else f" ({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})"
    return formats.ours_text(row) + told


def between(text: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """A page with the part between two markers replaced."""
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not (begin and end):
        raise ValueError(f"the page has no part between {marks[0]} and {marks[1]}")
    return f"{head}{begin}\n{table}\n{end}{tail}"
