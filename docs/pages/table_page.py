"""The paper's tables: a summary of each for the page on the reproduction, and a page with everything that was run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.pages.claims import Claim, by_profile, by_seed, claims, listed, on_common_seeds, placed, rank, span
from fedskew.core.spec import name_in
from fedskew.paper import formats
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES, Profile
from fedskew.paper.sections import by_data, sections
from fedskew.paper.table import SEVEN, Table, end, printed
from fedskew.report.page.provenance import command
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import NOT_DECIDED

NONE = "None of this has been run yet."
SUMMARY = (
    "Each entry is FedAvg → FedLC in percent (what FedLC gains, and the verdict unless fewer than three seeds leave it "
    "undecided; FedLC's rank among those of the paper's seven methods that were run). The paper's figures are of the "
    "last round over five seeds; ours are means of the last ten rounds (of short runs the last half) over the seeds "
    "that both methods have. So is the rank: other methods may have one seed; the tables' pages say which. A method "
    "that diverged with a seed has no rank."
)


def title(table: Table) -> str:
    return f"Table {table.name.removeprefix('table')}: {table.title}"


def summary(table: Table, results: Results) -> Iterator[str]:
    """What the paper prints for FedAvg and FedLC and what we found, cell by cell, and how much was run."""
    yield f"### {title(table)}"
    yield f"{_extent(table, results)} Every method and run: [table {table.name[-1]}](tables/{table.name}.md)."
    found = {
        profile.name: {claim.cell: claim for claim in claims(table, rows) if claim.compared}
        for profile, rows in by_profile(table.name, results)
    }
    known = {name: at for name, at in found.items() if at}
    if known:
        lengths = {n: span([c.ours["fedlc"]["rounds"] for c in at.values()], "d") for n, at in known.items()}
        heads = ["split", "the paper", *(f"`{name}`, {rounds} rounds" for name, rounds in lengths.items())]
        rows = [[placed(c), _in_print(table, c), *(_entry(at.get(c)) for at in known.values())] for c in table.cells]
        yield "\n".join(as_markdown(heads, rows))


def _in_print(table: Table, cell: str) -> str:
    plain, mine = (printed(table.name)[method][cell][0] for method in ("fedavg", "fedlc"))
    return "-" if plain is None or mine is None else f"{plain:.2f} → {mine:.2f} ({mine - plain:+.2f})"


def _entry(claim: Claim | None) -> str:
    """`41.29 → 57.14 (+15.86 above; 1 of 7)`"""
    if claim is None:
        return "-"
    known = {method: by_seed(ours) for method, ours in claim.ours.items() if method in SEVEN}
    means = on_common_seeds({method: known[method] for method in ("fedavg", "fedlc")})
    gain = claim.against("fedavg")
    said = "" if gain.verdict == NOT_DECIDED else f" {gain.verdict}"
    place = f"{rank(known, 'fedlc')} of {len(known)}"
    return f"{means['fedavg']:.2f} → {means['fedlc']:.2f} ({gain.mean:+.2f}{said}; {place})"


def _extent(table: Table, results: Results) -> str:
    """How many pairs of cell and method have a run under each profile."""
    said, pairs = [], len(table.cells) * len(table.methods)
    for profile, rows in by_profile(table.name, results):
        done = [row["ours"] for row in rows if row["ours"] and row["method"] in table.methods]
        if done:
            single = sum(len(ours["seeds"]) == 1 for ours in done)
            said.append(f"{len(done)} under `{profile.name}`" + (f" ({single} with one seed)" if single else ""))
    if not said:
        return NONE
    ours = [
        method
        for method in table.methods
        if not any(figure for figure, _ in printed(table.name).get(method, {}).values())
    ]
    added = f" ({listed(f'`{method}`' for method in ours)} added by us)" if ours else ""
    return f"Of {pairs} pairs of split and method{added} we ran {', '.join(said)}."


def page(table: Table, results: Results) -> Iterator[str]:
    """The table under each profile and with each length that was run."""
    yield f"# {title(table)}"
    yield (
        "The paper does not state the following, so we assume it unless a profile says otherwise: "
        + "; ".join(table.assumed)
        + ". Batch norm, "
        "Dirichlet sizes balanced, clients weighted by their examples." + (f" {table.remark}" if table.remark else "")
    )
    yield (
        "[Reproduction](../reproduction.md) has the summary, the profiles and the rule of the verdicts. "
        f"`fedskew paper show {table.name} --profile usual --format csv` prints a profile's figures with their runs."
    )
    if "fednova" in table.methods and any("shards" in cell for cell in table.cells):
        yield (
            "In Q(α) all clients have as many examples. There FedNova computes the same as FedAvg, and what differs is "
            "rounding ([how much](../measuring.md#seeds-and-verdicts))."
        )
    parts = list[str]()
    for profile, rows in by_profile(table.name, results):
        parts += _shown(table, profile, rows)
        for rounds in other_lengths(rows):
            short = table.rows(results, Choice(profile=profile, rounds=rounds))
            parts += _shown(table, profile, short, f", {rounds} rounds")
    yield from parts or [NONE]
    yield from _longer(table, results)


def _longer(table: Table, results: Results) -> Iterator[str]:
    """Runs of more rounds than the table has, which it cannot show."""
    found: dict[tuple[str, int], Result] = {}
    for profile in PROFILES.values():
        for cell, method in table.pairs(Choice(methods=(*table.methods, *table.beyond))):
            for result in results.answering(table.run(cell, method, Choice(profile=profile)).model_dump()):
                if result.rounds > table.full_rounds(cell):
                    found[result.hash, result.rounds] = result
    if found:
        yield "## Longer runs"
        heads = ("data", "split", "method", "seed", "rounds", "last round", "mean of the last ten", "run")
        yield "\n".join(as_markdown(heads, [_line(result) for result in found.values()]))
        yield "\n".join(["```bash", *(command(result.run) for result in found.values()), "```"])


def _line(result: Result) -> list[str]:
    short, ends = result.short, (100 * result.summary["accuracy"], end(result))
    about = [name_in(result.run["dataset"]), short["partition"], short["algorithm"], str(result.seed)]
    return [*about, str(result.rounds), *(f"{value:.2f}" for value in ends), result.hash]


def _shown(table: Table, profile: Profile, rows: Sequence[dict[str, Any]], length: str = "") -> Iterator[str]:
    """The figures of each data set that was run, what they rest on, and their runs."""
    if not any(row["ours"] for row in rows):
        return
    for data, here in by_data(rows).items():
        yield f"## Profile `{profile.name}`, {data}{length}"
        yield "\n".join(formats.markdown_tables(sections(here, named=placed))).rstrip()
        yield "\n".join(f"- {line}" for line in formats.rests_on(here))
        yield from _runs(table, profile, here)


def other_lengths(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Lengths of runs that exist but that the rows do not show."""
    return sorted({rounds for row in rows if row["ours"] for rounds in row["ours"]["other_lengths"]})


def _runs(table: Table, profile: Profile, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The runs behind the figures, and the commands that do them."""
    by_method: dict[str, list[str]] = {}
    for row in rows:
        if ours := row["ours"]:
            runs = ", ".join(f"{seed}: {name}" for seed, name in zip(ours["seeds"], ours["hashes"], strict=True))
            places = f" (on {ours['device'].replace(', ', ' and ')})" if "," in ours["device"] else ""
            by_method.setdefault(row["method"], []).append(f"{row['cell']} {runs}{places}")
    yield '<details markdown="1">\n<summary>Runs by seed, and the commands that do them</summary>'
    yield "\n".join(f"- `{method}`: {'; '.join(runs)}" for method, runs in by_method.items())
    yield "\n".join(["```bash", *_commands(table, profile, rows), "```"])
    yield "</details>"


def _commands(table: Table, profile: Profile, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What does these runs and no others: a command for the methods that were run alike in the same cells."""
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if ours := row["ours"]:
            cells.setdefault((row["method"], _options(ours)), []).append(row["cell"])
    methods: dict[tuple[str, ...], list[str]] = {}
    for (method, options), where in cells.items():
        methods.setdefault((options, *where), []).append(method)
    begin = f"fedskew paper run {table.name} --profile {profile.name}"
    for (options, *where), names in methods.items():
        yield " ".join([begin, *(f"--cells {cell}" for cell in where), f"--methods {','.join(names)}", options])


def _options(ours: Mapping[str, Any]) -> str:
    """How a method was run in a cell: over how many seeds, for how long, in which arithmetic and where."""
    words = [f"--seeds {1 + max(ours['seeds'])}", *([f"--rounds {ours['rounds']}"] if ours["shortened"] else [])]
    words += [f"--precision {ours['precision']}", *([] if ours["device"] == "cpu" else ["--device cuda"])]
    return " ".join(words)
