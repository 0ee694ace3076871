"""Every method on digits, which one core trains in minutes (results/digits): a page, and lines of the README."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from docs.pages.claims import by_verdict, listed, many, named, points, span
from docs.pages.rivals import Ends, against
from fedskew.report.text_tables import as_markdown
from fedskew.runs.measures import IID
from fedskew.runs.results import Result
from fedskew.runs.verdict import BASELINE, MEASURE, Difference, paired

TITLE = "Every method on digits"
METHODS = (
    "--algorithm fedavg,fedprox,scaffold,fednova,fedopt,fedrs,fedlc,fedla",
    "--algorithm fedlc:tau=1 --algorithm fedlc:travel=1",
    "--algorithm fedavgm --algorithm fedavgm:beta=0.5",
    "--algorithm fedexp,fedacg,feddyn,fedcm,fedntd,fedvls,feddecorr,fedsam,fedgc",
    "--algorithm refit,fedlc+refit,fedla+fedacg,fedla+fedacg+refit,fedlc+scaffold",
)
COMMAND = (
    "fedskew sweep --dataset digits --clients 20 --rounds 60 --lr 0.1 --batch-size 16",
    "--partition dirichlet:0.1,dirichlet:0.5,shards:2,iid --momentum 0,0.9",
    *METHODS,
    "--eval-every 10 --seeds 5",
)
"""What does these runs, line by line."""


def ways(lines: Sequence[Result]) -> dict[float, Ends]:
    """By momentum, split and method the accuracy of each seed at the end, in percent; None for one that diverged."""
    found: dict[float, dict[str, dict[str, dict[int, float | None]]]] = {}
    for one in sorted(lines, key=lambda line: (line.run["momentum"], _order(line.short["partition"]), line.seed)):
        cell = found.setdefault(one.run["momentum"], {}).setdefault(one.short["partition"], {})
        end = None if one.diverged else 100 * one.summary[MEASURE]
        cell.setdefault(one.short["algorithm"], {})[one.seed] = end
    return {momentum: dict(cells) for momentum, cells in found.items()}


def gains(at: Ends, method: str) -> dict[str, Difference]:
    """A method against FedAvg on every skewed split."""
    return {cell: gain for cell, gain in against(at, method, BASELINE).items() if cell != IID}


def training(momentum: float) -> str:
    return f"momentum {momentum:g}" if momentum else "no momentum"


def page(lines: Sequence[Result]) -> str:
    """The page; its figures are those of the runs."""
    found = ways(lines)
    parts = [
        f"# {TITLE}",
        "What does each method gain on real data that need no GPU? `digits` are 1,797 images of 8 x 8 pixels from "
        "scikit-learn, of which 355 are for testing (one is 0.3 points); the model is a small perceptron. This command "
        "does every run below, in minutes on one core:",
        "```bash\n" + " \\\n    ".join(COMMAND) + "\n```",
        f"Accuracies are means of the last ten of {rounds(lines)} rounds over {_seeds(found)}, in percent; differences "
        "are points over FedAvg with the same split and momentum, with the 95 % interval and the verdict ([the rule]"
        "(../measuring.md#seeds-and-verdicts)). Methods are ordered by their mean gain on the skewed splits. No "
        f"knob was searched. With {_compared(found)} comparisons some verdicts are chance: about one in twenty of "
        "those on methods that change nothing.",
    ]
    for momentum, at in found.items():
        parts += [f"## With {training(momentum)}", *_told(at), _table(at)]
    parts.append("`results/digits/` has every run with its hash.")
    return "\n\n".join(parts) + "\n"


def rounds(lines: Sequence[Result]) -> str:
    """How long runs are."""
    return span([one.rounds for one in lines], "d")


def _seeds(found: Mapping[float, Ends]) -> str:
    return many([len(seeds) for at in found.values() for of in at.values() for seeds in of.values()])


def _compared(found: Mapping[float, Ends]) -> int:
    return sum(len(of) - 1 for at in found.values() for of in at.values())


def _told(at: Ends) -> Iterator[str]:
    """What FedAvg loses to skew, what FedLC does, and who is above FedAvg wherever labels are skewed."""
    level = {cell: paired(of[BASELINE], at[IID][BASELINE]) for cell, of in at.items() if cell != IID}
    apart = listed(f"{gap.mean:+.1f} at {named(cell)}" for cell, gap in level.items() if gap)
    yield f"What skew costs FedAvg, its accuracy minus that on IID data: {apart} points."
    mine = gains(at, "fedlc")
    above = {method: {gain.verdict for gain in gains(at, method).values()} == {"above"} for method in _methods(at)}
    always = [f"`{method}`" for method, is_above in above.items() if is_above]
    who = listed(always) if always else "no method"
    yield (
        f"FedLC against FedAvg: {by_verdict(mine)} ({points(mine)} points). Above FedAvg on every skewed split: {who}."
    )


def _table(at: Ends) -> str:
    heads = ["method", *(named(cell) for cell in at)]
    base = [f"`{BASELINE}`", *(f"{_mean(of[BASELINE])}" for of in at.values())]
    rows = [[f"`{method}`", *(_cell(at, cell, method) for cell in at)] for method in _methods(at)]
    return "\n".join(as_markdown(heads, [base, *rows]))


def _methods(at: Ends) -> list[str]:
    """All but FedAvg, by their mean gain on skewed splits."""
    names = [method for method in next(iter(at.values())) if method != BASELINE]
    return sorted(names, key=lambda method: -_gain(gains(at, method)))


def _gain(found: Mapping[str, Difference]) -> float:
    return statistics.fmean(gain.mean for gain in found.values()) if found else float("-inf")


def _cell(at: Ends, cell: str, method: str) -> str:
    gain = against(at, method, BASELINE).get(cell)
    said = "" if gain is None else f" ({gain.mean:+.2f} {gain.interval} {gain.verdict})"
    return f"{_mean(at[cell][method])}{said}"


def _mean(of: Mapping[int, float | None]) -> str:
    fine = [value for value in of.values() if value is not None]
    lost = len(of) - len(fine)
    return (f"{statistics.fmean(fine):.1f}" if fine else "-") + (f", {lost} diverged" if lost else "")


def _order(split: str) -> tuple[bool, str]:
    return split == IID, split


def with_momentum(lines: Sequence[Result]) -> list[Difference]:
    """FedLC's differences to FedAvg on the skewed splits, if clients train with momentum."""
    return [gain for momentum, at in ways(lines).items() if momentum for gain in gains(at, "fedlc").values()]
