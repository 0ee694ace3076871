"""`docs/reproduction.md` and the table in the README, written from published results alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedskew.experiments.paper import FIGURES, TABLES, table_of_cell
from fedskew.experiments.paper.choice import Choice
from fedskew.experiments.paper.profiles import PROFILES
from fedskew.experiments.paper.sensitivity import BASES, Map
from fedskew.experiments.paper.table import Table
from fedskew.experiments.results import Results
from fedskew.report import paper_tables
from fedskew.report.sensitivity import sentences

CELL = "cifar10/dirichlet:0.1"
FIGURE_FOLDER = "figures"
NEAR = 1.0
BEGIN, END = "<!-- results: written by `make reproduction` -->", "<!-- end of results -->"

_INTRODUCTION = """\
# The paper, reproduced

Every figure on this page was measured with this package; `make reproduction` writes the page from the runs in
`results/paper/`, one line of JSON each with the whole run, its hash, the partition's hash, the accuracy of every
evaluated round, versions and device. In tables the paper's own figure stands in brackets behind ours. Accuracy is of
the global model after the last round on the whole test set, in percent; ± is the standard deviation over seeds
(ddof 1).

`fedskew paper list` shows what there is, `fedskew paper run table1 --cells cifar10 --seeds 1 --device cuda --precision
bf16` does runs, `fedskew paper show table1 --format csv` prints every figure with everything it rests on.

## What the paper leaves open

tau, the rule for classes a client does not have, the number of local epochs for most tables, the knobs of the other
methods and the exact network are not stated; a profile fills them in:
"""

_CONTRADICTIONS = """\
The paper's own tables disagree where they overlap: FedAvg on CIFAR-10 under D(0.3) is 55.95 in table 1 and 60.18 in
table 7, and under Q(5) 61.54 in table 7, 46.12 (E=1) and 75.81 (E=5) in table 5. Table 6 names neither data set nor
skew; table 5 says 10 clients in its caption and 20 in the text. A difference to a printed figure is therefore not by
itself a failure to reproduce; the order of methods is what can be compared.
"""


def reproduction(results: Results, figures: Path) -> str:
    """The whole page. `figures` is where pictures lie: those that are there are shown."""
    parts = [_INTRODUCTION.rstrip(), *_profiles(), _CONTRADICTIONS.rstrip(), *_map(results, figures)]
    for table in TABLES.values():
        parts += _table(table, results)
    parts += _figures(results, figures)
    return "\n\n".join(parts) + "\n"


def _profiles() -> Iterator[str]:
    yield "\n".join(f"- `{profile.name}`: {profile.about}." for profile in PROFILES.values())


def _map(results: Results, figures: Path) -> Iterator[str]:
    """The map around one cell, with the values of tau that have been run."""
    asked = published_map(results)
    rows = asked.rows(results, Choice())
    if not rows:
        return
    yield f"## What FedLC's gain hangs on: the map around {CELL}"
    yield (
        "Chosen on a tenth of the training examples, held out; the test set is only reported. "
        f"{_settings(rows)} One seed each."
    )
    if (figures / "map.png").exists():
        yield f"![FedLC minus FedAvg over the assumptions]({FIGURE_FOLDER}/map.png)"
    yield "\n".join(f"- {line}" for line in sentences(rows))
    yield _map_table(rows)
    taus = ",".join(f"{tau:g}" for tau in asked.taus)
    yield f"`fedskew paper map --cell {CELL} --taus {taus} --device cuda --precision bf16` does these runs."


def published_map(results: Results) -> Map:
    """The map around the cell, over those values of tau that are there in every setting."""
    full = Map(table_of_cell(CELL), CELL)
    there = {(row["setting"], row["algorithm"]) for row in full.rows(results, Choice()) if row["part"] == "margin"}

    def complete(tau: float) -> bool:
        return all((base.name, text) in there for base in BASES for text in Map(full.table, CELL, (tau,)).margins())

    return Map(full.table, CELL, tuple(tau for tau in full.taus if complete(tau)))


def _settings(rows: Sequence[dict[str, Any]]) -> str:
    devices = ", ".join(dict.fromkeys(row["device"] for row in rows))
    return f"Device {devices}, {', '.join(dict.fromkeys(row['precision'] for row in rows))}."


def _map_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| setting | method | held out % | test % | rounds | run |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        test = f"diverged in round {row['diverged']}" if row["test"] is None else f"{row['test']:.2f}"
        shown = [row["setting"], f"`{row['algorithm']}`", f"{row['validation']:.2f}", test, row["rounds"], row["hash"]]
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines)


def _table(table: Table, results: Results) -> Iterator[str]:
    yield f"## Table {table.name.removeprefix('table')}: {table.title}"
    yield "Not in the paper, so assumed: " + "; ".join(table.assumed) + "."
    some = False
    for profile in PROFILES.values():
        rows = table.rows(results, Choice(profile=profile))
        if not any(row["ours"] for row in rows):
            continue
        some = True
        yield f"### Profile `{profile.name}`"
        yield paper_tables.markdown(rows).rstrip()
        if claims := list(_claims(rows)):
            yield "\n".join(f"- {claim}" for claim in claims)
    if not some:
        yield "Nothing of this has been run yet."


def _claims(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For each cell, FedLC against FedAvg and against the best other method: ours, and the paper's."""
    for cell in dict.fromkeys(row["cell"] for row in rows):
        ours = {r["method"]: r["ours"]["mean"] for r in rows if r["cell"] == cell and r["ours"] and r["ours"]["mean"]}
        printed = {r["method"]: r["printed"]["mean"] for r in rows if r["cell"] == cell and r["printed"]["mean"]}
        if not {"fedavg", "fedlc"} <= set(ours) or not {"fedavg", "fedlc"} <= set(printed):
            continue
        gain, theirs = ours["fedlc"] - ours["fedavg"], printed["fedlc"] - printed["fedavg"]
        others = {method: value for method, value in ours.items() if "fedlc" not in method}
        best = max(others, key=lambda method: others[method])
        holds = "above" if gain > NEAR else "below" if gain < -NEAR else "within a point of"
        yield (
            f"{cell}: FedLC is {holds} FedAvg ({gain:+.2f}; the paper {theirs:+.2f}); "
            f"best of the others here: {best}, {others[best]:.2f} against FedLC's {ours['fedlc']:.2f}."
        )


def _figures(results: Results, figures: Path) -> Iterator[str]:
    yield "## Figures"
    for figure in FIGURES.values():
        if (figures / f"{figure.name}.png").exists():
            yield f"### Figure {figure.name.removeprefix('figure')}: {figure.title}"
            yield f"![{figure.title}]({FIGURE_FOLDER}/{figure.name}.png)"
            if figure.runs() and (lines := figure.lines(figure.rows(results))):
                yield "\n".join(["```text", *lines, "```"])
        else:
            yield f"### Figure {figure.name.removeprefix('figure')}: {figure.title}"
            yield f"Not measured yet; `fedskew paper run {figure.name}` does it."


def readme_table(results: Results) -> str:
    """FedLC against FedAvg wherever both have been run, profile by profile."""
    lines = ["| cell | profile | rounds | seeds | FedAvg | FedRS | FedLC | logit adj. | paper: FedAvg, FedLC |"]
    lines.append("|" + " --- |" * 9)
    for table in TABLES.values():
        for profile in PROFILES.values():
            rows = table.rows(results, Choice(profile=profile))
            for cell in dict.fromkeys(row["cell"] for row in rows):
                at = {row["method"]: row for row in rows if row["cell"] == cell}
                if all(at.get(method, {}).get("ours") for method in ("fedavg", "fedlc")):
                    lines.append(_readme_line(f"{table.name}: {cell}", profile.name, at))
    return "\n".join(lines)


def _readme_line(cell: str, profile: str, at: dict[str, dict[str, Any]]) -> str:
    ours = at["fedlc"]["ours"]
    shown = [_plain(at.get(method)) for method in ("fedavg", "fedrs", "fedlc", "fedla")]
    printed = ", ".join(paper_tables.printed_text(at[method]).partition(" ")[0] for method in ("fedavg", "fedlc"))
    rounds = f"{ours['rounds']}" + (" (shortened)" if ours["shortened"] else "")
    return "| " + " | ".join([cell, profile, rounds, str(len(ours["seeds"])), *shown, printed]) + " |"


def _plain(row: dict[str, Any] | None) -> str:
    if row is None or row["ours"] is None or row["ours"]["mean"] is None:
        return "-"
    std = row["ours"]["std"]
    return f"{row['ours']['mean']:.2f}" + (f" ± {std:.2f}" if std is not None else "")


def between(text: str, table: str) -> str:
    """A page with the part between the two marks replaced."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no part between {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"
