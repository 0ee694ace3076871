"""The README's answer to whether FedLC helps: a chart, a few sentences and a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.pages import closing, depends, rivals, small_data
from docs.pages.claims import SMALL, Claim, by_seed, claims, counted, lengths, listed, named, seeds, span
from docs.pages.gain_figure import gain_figure
from fedskew.core.spec import name_in
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.formats import share_text
from fedskew.paper.profiles import PROFILES
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import Reach
from fedskew.runs.results import Result, Results
from fedskew.runs.verdict import BASELINE, CLOSE, VERDICTS, Difference

DATA, CHART = "cifar10", "gains"
REVEALS = "docs/algorithms.md#the-readout-refit-ours"
_TABLES = ("table1", "table2", "table3", "table4")
_BOTH = ("fedlc", "fedavg")


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
    ends = "ours: means of the last ten rounds, the paper: last round"
    note = f"{ends}; dots are seeds, where there are several; no bar: not run"
    return gain_figure(folder / CHART, cells, labels, title, note)


@dataclass(frozen=True)
class Place:
    """FedLC against FedAvg in the splits of a data set, trained in one way for so many rounds, and the paper's."""

    data: str
    training: str
    rounds: str
    gains: Sequence[Difference]
    printed: Sequence[float] = ()

    def row(self) -> list[str]:
        said = [gain.verdict for gain in self.gains]
        verdicts = ", ".join(f"{word} in {said.count(word)}{self._by(word)}" for word in VERDICTS if word in said)
        shown = span(self.printed, "+.1f") if self.printed else "-"
        numbers = span([gain.seeds for gain in self.gains], "d")
        return [self.data, self.training, self.rounds, _span(self.gains), verdicts, numbers, shown]

    def _by(self, word: str) -> str:
        """By how much, where all that is above or below is so by little."""
        sizes = [abs(gain.mean) for gain in self.gains if gain.verdict == word]
        little = word in ("above", "below") and max(sizes) < SMALL
        return f" (by {span(sizes, '.2f')})" if little else ""


def part(results: Results, figures: str, digits: Sequence[Result] = ()) -> str:
    """The text in the README, with the chart from a folder of figures; nothing if nothing was run."""
    usual = _claims(results, "usual")
    if not usual:
        return ""
    chart = f"![FedLC's gain over FedAvg by skew: the paper's, and ours under two profiles]({figures}/{CHART}.png)"
    heads = ("data", "clients train with", "rounds", "FedLC − FedAvg, points", "splits", "seeds", "the paper prints")
    table = as_markdown(heads, [place.row() for place in _places(results, digits) if place.gains])
    known = [" ".join(_answer(results)), chart, "\n".join(table), _KEY, "\n".join(_caveats(results, usual))]
    return "\n\n".join([text for text in known if text] + [*_gap(results)])


_KEY = (
    "A split is above or below if the 95 % interval over seeds excludes zero, tied if all of it is within "
    f"{CLOSE:g} points, and otherwise open; one or two seeds decide nothing ([how we measure](docs/measuring.md)). "
    "`200 of 400` rounds: the paper has 400. D(beta) is Dirichlet label skew, Q(alpha) gives every client alpha "
    f"shards: the smaller, the more skewed. Strong skew is {listed(map(named, depends.CELLS))}. "
    "[Every split, method and run](docs/reproduction.md)."
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
            f"On CIFAR-10 under strong label skew, FedLC gains **{_span(usual)} points** over FedAvg after "
            f"{_rounds(strong['usual'])}{_longer(results)} if clients train with momentum and random crops, as is "
            "usual."
        )
    if stated:
        printed = [claim.printed_gain for claim in strong["stated"] if claim.printed_gain is not None]
        yield (
            f"The paper names neither; without them FedLC gains **{_span(stated)}** ({seeds(stated)}), where the paper "
            f"prints {span(printed, '+.1f')}."
        )
    yield "On other data it gains less, or loses."


def _longer(results: Results) -> str:
    """What is left of that gain in the longest runs, where FedAvg has more time."""
    last = depends.SETTINGS[-1]
    gains = [one.gain for one in depends.measured(results) if one.setting == last]
    return f" ({_span(gains)} after {last.rounds}, {seeds(gains)})" if gains else ""


def _places(results: Results, digits: Sequence[Result]) -> Iterator[Place]:
    """Every data set on which both methods were run."""
    crops, neither = "momentum, crops", "neither"
    for data, name, profile, training in (
        ("cifar10", "CIFAR-10", "usual", crops),
        ("cifar10", "CIFAR-10", "stated", neither),
        ("cifar100", "CIFAR-100", "usual", crops),
        ("imagenet12", "12 classes of Tiny-ImageNet", "usual", crops),
        ("svhn", "SVHN", "usual", "momentum"),
        ("synthetic", "Synthetic (linear model)", "usual", "momentum"),
        ("synthetic", "Synthetic (linear model)", "stated", neither),
    ):
        found = [*_claims(results, profile, data).values()]
        printed = [claim.printed_gain for claim in found if claim.printed_gain is not None]
        yield Place(name, training, lengths(found) if found else "", [c.against("fedavg") for c in found], printed)
    for training, gains in small_data.in_short(digits):
        yield Place("digits", training, small_data.rounds(digits), gains)


def detail(results: Results) -> Iterator[str]:
    """FedLC against FedAvg in every split of CIFAR-10; nothing if nothing was run."""
    if usual := _claims(results, "usual"):
        clients = span([claim.ours["fedlc"]["clients"] for claim in usual.values()], "d")
        yield "## CIFAR-10, split by split"
        yield (
            f"FedLC against FedAvg under the profile `usual`, {clients} clients, {_length(usual)}: mean accuracy of "
            "the last ten rounds in percent. Rounds to FedAvg's end: of FedLC, and of FedAvg, which has it earlier too."
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
    return _rounds(found.values()) if found else "not run"


def _rounds(found: Iterable[Claim]) -> str:
    return f"{span([claim.ours['fedlc']['rounds'] for claim in found], 'd')} rounds"


def _caveats(results: Results, usual: Mapping[str, Claim]) -> Iterator[str]:
    """A bullet each for a better FedAvg, and for the rounds that FedLC takes."""
    if best := depends.against_best(depends.measured(results)):
        yield (
            "- **Momentum can harm FedAvg.** Over the best of our FedAvgs, with or without momentum and crops, FedLC "
            f"gains {_span(best.values())} points under strong skew ({depends.SETTINGS[-1].rounds} rounds, "
            f"{seeds(best.values())}). All have one learning rate; [the map](docs/tables/map.md) has others."
        )
    took = {method: [claim.ours[method]["rounds_to_reach"]["rounds"] for claim in usual.values()] for method in _BOTH}
    reached = {method: [rounds for rounds in found if rounds is not None] for method, found in took.items()}
    if all(reached.values()):
        yield (
            f"- **Rounds**, with momentum and crops: FedLC first has FedAvg's final accuracy after "
            f"{span(reached['fedlc'], 'd')} of {_length(usual)}, FedAvg after {span(reached['fedavg'], 'd')}."
        )


def _gap(results: Results) -> Iterator[str]:
    """How much of the gap FedLC and the best combinations close, and what these gain elsewhere."""
    methods = closing.closed(results)
    best = closing.combinations(methods) if "fedlc" in methods else []
    if not best:
        return
    more = all(gain.verdict == "above" for name in best for gain in closing.over_fedlc(methods, name).values())
    elsewhere = {name: _elsewhere(results, name) for name in reversed(best)}
    loses = any(gain.verdict == "below" for at in elsewhere.values() for gains in at.values() for gain in gains)
    title = "The best combinations gain more" if more else "Combinations"
    yield (
        f"**{title}{' on CIFAR-10, and can lose elsewhere' if loses else ''}.** How "
        f"much of the gap between skewed and IID data is closed on CIFAR-10 ({closing.SEEDS} seeds, "
        f"{closing.SETTING.rounds} rounds; [other methods](docs/which-method.md)):"
    )
    yield closing.table_of_shares(methods, ["fedlc", *reversed(best)])
    said = [
        "A gain on IID data is better training, not a cure for skew. Combinations were found by looking at test "
        "accuracies, so their lead is somewhat flattered."
    ]
    if any(closing.READOUT in name for name in best):
        said.append(f"`{closing.READOUT}` [lets the server compute label counts]({REVEALS}).")
    if told := [_gains(name, at) for name, at in elsewhere.items() if at]:
        said.append(f"On other data, points over FedAvg: {'; '.join(told)}.")
    yield " ".join(said)


def _elsewhere(results: Results, method: str) -> dict[str, list[Difference]]:
    """What a method gains over FedAvg on each other data set, in every split and way of training."""
    found: dict[str, list[Difference]] = {}
    for data, profiles in rivals.PLACES.items():
        for profile in profiles if data != DATA else ():
            if gains := rivals.against(rivals.cells(results, data, profile), method, BASELINE):
                found.setdefault(data, []).extend(gains.values())
    return found


def _gains(method: str, at: Mapping[str, Sequence[Difference]]) -> str:
    """What a method gains on each data set."""
    said = {data: seeds(of) for data, of in at.items()}
    said |= {data: f"{counted(of)}; {said[data]}" for data, of in at.items() if any(gain.half for gain in of)}
    return f"`{method}` {listed(f'{_span(of)} on {rivals.NAMES[data]} ({said[data]})' for data, of in at.items())}"


def _table(found: Mapping[str, Claim]) -> str:
    heads = ("CIFAR-10", "FedAvg", "FedLC", "FedLC − FedAvg", "the paper's", "rounds to FedAvg's end", "IID gap closed")
    rows = []
    for cell, claim in found.items():
        mine = claim.ours["fedlc"]
        shown = [f"{claim.ours[method]['last_ten']:.1f}" for method in ("fedavg", "fedlc")]
        printed = "-" if claim.printed_gain is None else f"{claim.printed_gain:+.1f}"
        reach = " / ".join(str(Reach(**claim.ours[method]["rounds_to_reach"])) for method in ("fedlc", "fedavg"))
        figures = [str(claim.against("fedavg")), printed, reach, share_text(mine)]
        rows.append([named(cell), *shown, *figures])
    return "\n".join(as_markdown(heads, rows))


def _span(gains: Iterable[Difference]) -> str:
    return span([gain.mean for gain in gains], "+.1f")
