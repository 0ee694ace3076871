"""The README's answer to whether FedLC helps: a chart, a few sentences and a table."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.pages import closing, depends, rivals
from docs.pages.claims import Claim, by_seed, claims, listed, named, span
from docs.pages.gain_figure import gain_figure
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.formats import share_text
from fedskew.paper.profiles import PROFILES
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Reach
from fedskew.runs.results import Results
from fedskew.runs.verdict import NOT_DECIDED, VERDICTS, Difference

DATA, CHART = "cifar10", "gains"
REVEALS = "docs/algorithms.md#the-readout-refit-ours"
_TABLES = {"table1": "D", "table2": "Q"}


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


def part(results: Results, figures: str) -> str:
    """The text in the README, with the chart from a folder of figures; nothing if nothing was run."""
    usual, stated = (_claims(results, profile) for profile in ("usual", "stated"))
    if not usual:
        return ""
    chart = f"![FedLC's gain over FedAvg by skew: the paper's, and ours under two profiles]({figures}/{CHART}.png)"
    return "\n\n".join(
        [
            *_short(results, usual),
            chart,
            "\n".join(f"- {line}" for line in _lines(results, usual, stated)),
            _table(usual),
            _key(usual),
        ]
    )


def _short(results: Results, usual: Mapping[str, Claim]) -> Iterator[str]:
    """One sentence: in how many splits of which data FedLC is above FedAvg or below, where enough seeds decide that."""
    gains = {"CIFAR-10": [claim.against("fedavg") for claim in usual.values()]}
    for data, name in (("cifar100", "CIFAR-100"), ("svhn", "SVHN")):
        gains[name] = [*rivals.against(rivals.cells(results, data), "fedlc", "fedavg").values()]
    told = []
    for name, found in {**gains, "the linear Synthetic data": _linear(results)}.items():
        at = {word: [gain for gain in found if gain.verdict == word] for word in VERDICTS}
        words = [f"{word} in {len(at[word])} ({_span(at[word])})" for word in ("above", "below") if at[word]]
        decided = len(found) - len(at[NOT_DECIDED])
        told += [f"{listed(words or ['above in none'])} of {decided} splits of {name}"] if decided else []
    if told:
        which = "FedLC against FedAvg, over three seeds or more (points in brackets)"
        yield f"{which}: {', '.join(told)}. The others are tied or open."


def _cells() -> list[str]:
    return [cell for table in _TABLES for cell in TABLES[table].cells if cell.startswith(f"{DATA}/")]


def _claims(results: Results, profile: str) -> dict[str, Claim]:
    """FedLC against FedAvg in every cell of tables 1 and 2 in which both were run in the same way."""
    found = {}
    for name in _TABLES:
        choice = Choice(cells=(DATA,), profile=PROFILES[profile])
        for claim in claims(TABLES[name], TABLES[name].rows(results, choice)):
            if claim.compared:
                found[claim.cell] = claim
    return found


def _each_gain(claim: Claim) -> list[float]:
    mine, base = by_seed(claim.ours["fedlc"]), by_seed(claim.ours["fedavg"])
    return [mine[seed] - base[seed] for seed in mine if seed in base]


def _length(found: Mapping[str, Claim]) -> str:
    return f"{span([claim.ours['fedlc']['rounds'] for claim in found.values()], 'd')} rounds" if found else "not run"


def _lines(results: Results, usual: Mapping[str, Claim], stated: Mapping[str, Claim]) -> Iterator[str]:
    """A bullet each for what FedLC gains, what it gains elsewhere, and what closes more of the gap."""
    yield " ".join([*_gained(usual), *_longer(results)])
    if told := [*_elsewhere(results, stated)]:
        yield f"**Elsewhere** FedLC's gain over FedAvg, in points, is {listed(told)}."
    if best := " ".join(_best(closing.closed(results))):
        yield best


def _gained(usual: Mapping[str, Claim]) -> Iterator[str]:
    ours = [claim.ours["fedlc"] for claim in usual.values()]
    gains = [claim.against("fedavg") for claim in usual.values()]
    yield (
        f"**With momentum and random crops**, as such networks are usually trained, FedLC gains {_span(gains)} points "
        f"over FedAvg in {len(gains)} splits of CIFAR-10."
    )
    reached = [one["rounds_to_reach"]["rounds"] for one in ours if one["rounds_to_reach"]["rounds"] is not None]
    closed = [one["gap_closed"]["share"] for one in ours if one["gap_closed"]]
    level = [one["iid_gain"]["mean"] for one in ours if one["iid_gain"]]
    yield (
        f"It reaches FedAvg's final accuracy after {span(reached, 'd')} of {_length(usual)}"
        + (f" and closes {span([100 * share for share in closed], '.0f')} % of the gap to IID data" if closed else "")
        + (f"; on IID data its gain is {statistics.fmean(level):+.1f}" if level else "")
        + "."
    )


def _longer(results: Results) -> Iterator[str]:
    """What is left of the gain in runs that are twice as long."""
    *_, usual, longer = depends.SETTINGS
    if both := depends.together(depends.measured(results), usual, longer):
        short, long = zip(*both.values(), strict=True)
        yield (
            f"At {listed(map(named, both))} the gain is {_span(short)} after {usual.rounds} rounds and {_span(long)} "
            f"after {longer.rounds} ({rivals.seeds(long)} in common)."
        )


def _elsewhere(results: Results, stated: Mapping[str, Claim]) -> Iterator[str]:
    """Other training and other data, with the range of gains."""
    if plain := [claim.against("fedavg") for claim in stated.values()]:
        yield f"{_span(plain)} on CIFAR-10 without momentum and crops ({rivals.seeds(plain)})"
    places = {
        "cifar100": "CIFAR-100 with both",
        "imagenet12": "12 classes of ImageNet with both",
        "svhn": "SVHN with momentum",
    }
    for data, place in places.items():
        if there := rivals.against(rivals.cells(results, data), "fedlc", "fedavg"):
            yield f"{_span([*there.values()])} on {place} ({rivals.seeds(there.values())})"
    if linear := _linear(results):
        yield f"{_span(linear)} on the linear Synthetic data ({rivals.seeds(linear)})"


def _linear(results: Results) -> list[Difference]:
    found = claims(TABLES["table4"], TABLES["table4"].rows(results, Choice()))
    return [claim.against("fedavg") for claim in found if claim.compared and claim.cell.startswith("synthetic")]


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
    specs = ", ".join(f"`{cell.partition('/')[2]}`" for cell in cells)
    yield (
        f"**Combinations** close more of the gap to IID data: at {listed(map(named, cells))} ({specs}), "
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


def _key(found: Mapping[str, Claim]) -> str:
    clients = span([claim.ours["fedlc"]["clients"] for claim in found.values()], "d")
    return (
        f"{clients} clients, {_length(found)}, profile `usual`; mean accuracy of the last ten rounds in percent. "
        "D(beta): Dirichlet label skew; Q(alpha): alpha shards per client. What other methods gain is in "
        "[Which method for my skew](docs/which-method.md), and every run in [Reproduction](docs/reproduction.md)."
    )


def _span(gains: Sequence[Any]) -> str:
    return span([gain.mean for gain in gains], "+.1f")
