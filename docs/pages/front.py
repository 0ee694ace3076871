"""The README's answer to whether FedLC helps: a chart, a few sentences and a table."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.pages import closing, depends, rivals
from docs.pages.claims import Claim, by_seed, claims, listed, named, span
from docs.pages.gain_figure import gain_figure
from fedskew.core.spec import name_in
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.formats import share_text
from fedskew.paper.profiles import PROFILES
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Reach
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import MEASURE, VERDICTS, Difference, paired

DATA, CHART = "cifar10", "gains"
REVEALS = "docs/algorithms.md#the-readout-refit-ours"
_TABLES = ("table1", "table2", "table3", "table4")


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the chart of the cells that have been run."""
    found = {profile: _claims(results, profile) for profile in ("stated", "usual")}
    cells = []
    for cell in _cells():
        at = {profile: known[cell] for profile, known in found.items() if cell in known}
        gains = {profile: _each_gain(claim) for profile, claim in at.items()}
        printed = next((claim.printed_gain for claim in at.values() if claim.printed_gain is not None), None)
        if gains:
            cells.append({"name": named(cell), "gains": {"paper": [] if printed is None else [printed], **gains}})
    labels = {
        "paper": "the paper",
        "stated": f"ours, profile stated: no momentum, no crops, {_length(found['stated'])}",
        "usual": f"ours, profile usual: momentum 0.9, crops and mirror images, {_length(found['usual'])}",
    }
    title = "What FedLC gains over FedAvg on CIFAR-10, 20 clients"
    note = "means of the last ten rounds; dots are seeds, where there are several; no bar: not run"
    return gain_figure(folder / CHART, cells, labels, title, note)


@dataclass(frozen=True)
class Place:
    """FedLC against FedAvg in the splits of a data set, trained in one way, and what the paper prints there."""

    data: str
    training: str
    gains: Sequence[Difference]
    printed: Sequence[float] = ()

    def row(self) -> list[str]:
        said = [gain.verdict for gain in self.gains]
        verdicts = ", ".join(f"{word} in {said.count(word)}" for word in VERDICTS if word in said)
        shown = span(self.printed, "+.1f") if self.printed else "-"
        return [self.data, self.training, verdicts, f"{_span(self.gains)} ({rivals.seeds(self.gains)})", shown]


def part(results: Results, figures: str, digits: Sequence[Result] = ()) -> str:
    """The text in the README, with the chart from a folder of figures; nothing if nothing was run."""
    usual = _claims(results, "usual")
    if not usual:
        return ""
    chart = f"![FedLC's gain over FedAvg by skew: the paper's, and ours under two profiles]({figures}/{CHART}.png)"
    heads = ("data", "clients train with", "FedLC against FedAvg, splits", "gain, points", "the paper's")
    table = as_markdown(heads, [place.row() for place in _places(results, digits) if place.gains])
    lines = "\n".join(f"- {line}" for line in _lines(results, usual))
    return "\n\n".join([" ".join(_answer(results)), chart, "\n".join(table), _KEY, lines])


_KEY = (
    "Above, below: the 95 % interval over seeds excludes zero; open: more seeds are needed; one seed decides nothing "
    "([how we measure](docs/measuring.md)). D(beta) is Dirichlet label skew, Q(alpha) gives every client alpha shards. "
    "[Every split, method and run](docs/reproduction.md) · [What other methods gain](docs/which-method.md)."
)


def _answer(results: Results) -> Iterator[str]:
    """What FedLC gains under the strongest skew, trained in two ways, and in print."""
    strong = {
        profile: [claim for cell, claim in _claims(results, profile).items() if cell in depends.CELLS]
        for profile in ("usual", "stated")
    }
    usual, stated = ([claim.against("fedavg") for claim in found] for found in strong.values())
    if usual:
        yield (
            f"On CIFAR-10 under strong skew ({listed(named(claim.cell) for claim in strong['usual'])}), FedLC gains "
            f"**{_span(usual)} points** over FedAvg, if clients train with momentum and random crops, as is usual."
        )
    if stated:
        printed = [claim.printed_gain for claim in strong["stated"] if claim.printed_gain is not None]
        yield (
            f"With no more than the paper states of its training, which names neither, it gains **{_span(stated)}** "
            f"there ({rivals.seeds(stated)}); the paper prints {span(printed, '+.1f')}."
        )
    yield "On other data it gains less, or loses."


def _places(results: Results, digits: Sequence[Result]) -> Iterator[Place]:
    """Every data set on which both methods were run."""
    crops, neither = "momentum, crops", "neither"
    for data, name, profile, training in (
        ("cifar10", "CIFAR-10", "usual", crops),
        ("cifar10", "CIFAR-10", "stated", neither),
        ("cifar100", "CIFAR-100", "usual", crops),
        ("imagenet12", "12 classes of ImageNet", "usual", crops),
        ("svhn", "SVHN", "usual", "momentum"),
        ("synthetic", "Synthetic (linear model)", "stated", neither),
    ):
        found = [*_claims(results, profile, data).values()]
        printed = [claim.printed_gain for claim in found if claim.printed_gain is not None]
        yield Place(name, training, [claim.against("fedavg") for claim in found], printed)
    ends = {
        method: {one.seed: 100 * one.summary[MEASURE] for one in digits if one.short["algorithm"] == method}
        for method in ("fedlc", "fedavg")
    }
    gain = paired(ends["fedlc"], ends["fedavg"])
    yield Place("digits", neither, [gain] if gain else [])


def detail(results: Results) -> Iterator[str]:
    """FedLC against FedAvg in every split of CIFAR-10; nothing if nothing was run."""
    if usual := _claims(results, "usual"):
        clients = span([claim.ours["fedlc"]["clients"] for claim in usual.values()], "d")
        yield "## CIFAR-10, split by split"
        yield (
            f"FedLC against FedAvg under the profile `usual`, {clients} clients, {_length(usual)}: mean accuracy of "
            "the last ten rounds in percent."
        )
        yield _table(usual)


def _cells() -> list[str]:
    return [cell for table in _TABLES for cell in TABLES[table].cells if cell.startswith(f"{DATA}/")]


def _claims(results: Results, profile: str, data: str = DATA) -> dict[str, Claim]:
    """FedLC against FedAvg in every split of a data set in which both were run in the same way."""
    found = dict[str, Claim]()
    for table in (TABLES[name] for name in _TABLES):
        there = tuple(cell for cell in table.cells if name_in(cell.partition("/")[0]) == data)
        rows = table.rows(results, Choice(cells=there, profile=PROFILES[profile])) if there else []
        found |= {claim.cell: claim for claim in claims(table, rows) if claim.compared}
    return found


def _each_gain(claim: Claim) -> list[float]:
    mine, base = by_seed(claim.ours["fedlc"]), by_seed(claim.ours["fedavg"])
    return [mine[seed] - base[seed] for seed in mine if seed in base]


def _length(found: Mapping[str, Claim]) -> str:
    return f"{span([claim.ours['fedlc']['rounds'] for claim in found.values()], 'd')} rounds" if found else "not run"


def _lines(results: Results, usual: Mapping[str, Claim]) -> Iterator[str]:
    """A bullet each for the rounds that FedLC takes, and for the gap to IID data."""
    ours = [claim.ours["fedlc"] for claim in usual.values()]
    reached = [one["rounds_to_reach"]["rounds"] for one in ours if one["rounds_to_reach"]["rounds"] is not None]
    if reached:
        had = f"FedLC has FedAvg's final accuracy after {span(reached, 'd')} of {_length(usual)}."
        yield " ".join([f"**Rounds** on CIFAR-10, with momentum and crops: {had}", *_longer(results)])
    closed = [one["gap_closed"]["share"] for one in ours if one["gap_closed"]]
    level = [one["iid_gain"]["mean"] for one in ours if one["iid_gain"]]
    if closed:
        told = f"**The gap to IID data** there: FedLC closes {span([100 * share for share in closed], '.0f')} % of it"
        told += f", and on IID data its gain is {statistics.fmean(level):+.1f}" if level else ""
        yield " ".join([f"{told}.", *_best(closing.closed(results))])


def _longer(results: Results) -> Iterator[str]:
    """What is left of the gain in runs that are twice as long, with the seeds that both have."""
    *_, usual, longer = depends.SETTINGS
    if both := depends.together(depends.measured(results), usual, longer):
        short, long = ([pair[i] for pair in both.values()] for i in (0, 1))
        yield (
            f"At {listed(map(named, both))} it gains {_span(long)} after {longer.rounds} rounds, {_span(short)} after "
            f"{usual.rounds} ({rivals.seeds(long)} in common)."
        )


def _best(methods: Mapping[str, Mapping[str, closing.Row]]) -> Iterator[str]:
    """The share of the gap closed by the best method, by the best of those that ask for nothing after training, and by
    FedLC."""
    if "+" not in next(iter(methods), ""):
        return
    quiet = next(name for name in methods if closing.READOUT not in name)
    told = {
        name: closing.shares(methods[name])
        for name in dict.fromkeys((next(iter(methods)), quiet, "fedlc"))
        if name in methods
    }
    cells = list(next(iter(methods.values())))
    yield (
        f"Combinations close more: at {listed(map(named, cells))}, "
        + ", ".join(f"`{name}` {share}" for name, share in told.items())
        + f" ({closing.SEEDS} seeds)."
    )
    if any(closing.READOUT in name for name in told):
        yield f"`{closing.READOUT}` [lets the server compute label counts]({REVEALS})."


def _table(found: Mapping[str, Claim]) -> str:
    heads = ("CIFAR-10", "FedAvg", "FedLC", "FedLC − FedAvg", "the paper's", "rounds to FedAvg's end", "IID gap closed")
    rows = []
    for cell, claim in found.items():
        mine = claim.ours["fedlc"]
        shown = [f"{claim.ours[method]['last_ten']:.1f}" for method in ("fedavg", "fedlc")]
        printed = "-" if claim.printed_gain is None else f"{claim.printed_gain:+.1f}"
        figures = [str(claim.against("fedavg")), printed, str(Reach(**mine["rounds_to_reach"])), share_text(mine)]
        rows.append([named(cell), *shown, *figures])
    return "\n".join(as_markdown(heads, rows))


def _span(gains: Sequence[Any]) -> str:
    return span([gain.mean for gain in gains], "+.1f")
