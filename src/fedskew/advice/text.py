"""Advice in words: what to do and why, then the evidence. Every figure names its setting."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from fedskew.advice.findings import MOST, NEAR, Advice, Evidence, Gain, Row, Setting, has_readout, scaled
from fedskew.advice.kinds import UNKNOWN
from fedskew.algorithms import ALGORITHMS
from fedskew.core import spec
from fedskew.runs.run import Run
from fedskew.runs.summary import mean_words
from fedskew.runs.verdict import BASELINE, CLOSE, FEWEST, NOT_DECIDED

_INDICES = {
    "mean_total_variation": "mean total variation",
    "effective_classes": "effective classes",
    "missing_share": "missing share",
    "size_gini": "size Gini",
}
_ODD = ("augment", "optimizer", "weighting", "weight_decay", "lr_schedule", "grad_clip", "dropout_rate", "validation")
_COUNTED = ("", "this one", "these two", "these three")
_LISTED = 3
"""Settings that the text shows, besides those that the verdict cites."""
_BEST = 6
"""Methods that it shows of each, those above FedAvg first, besides those that the verdict names."""


def lines(advice: Advice, *, whole: bool = False) -> list[str]:
    """The text, except the command at its end; `whole` with every setting."""
    head, said = verdict(advice), training(advice)
    head += [f"How you train can matter: {said}"] if said else []
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", " ".join(head))}
    shown = [item for item in advice.evidence if whole or item.number <= _LISTED or item.number in cited]
    return [*head, "", *indices(advice), *evidence(advice, shown, whole=whole)]


def verdict(advice: Advice) -> list[str]:
    """What to do and why, how similar the evidence is to the user's data, and what `refit` reveals."""
    if advice.clients == 1:
        return ["There is one client: nothing is averaged, and no labels are skewed. Train on it directly."]
    if advice.classes_held == 1:
        return ["There is one class: a model that always answers it is right, and there is nothing to learn."]
    if advice.do == "even":
        far = advice.skew["mean_total_variation"]
        return [f"Use FedAvg: labels are hardly skewed here (mean total variation {far:.3f})."]
    named = ", ".join(advice.methods)
    tries = f"; try {_COUNTED[len(advice.methods)]}: {named}" if named else ", and there is no method to suggest"
    what = {
        "use": f"Use {', or else '.join(advice.methods)}.",
        "depends": f"It depends on how you train: {named} gained in some settings and lost in others.",
        "keep": f"Stay with FedAvg: no method that was run is above it.{f' Still to try: {named}.' if named else ''}",
        "unknown": f"Unknown on data like yours{tries}.",
    }[advice.do]
    if advice.own:
        what += f" Your own runs on this split: {'; '.join(_row(advice, row) for row in advice.own)}."
    kept = [row for row in (*advice.own, *advice.like) if row.stands == "keep"] if advice.do == "keep" else []
    rows = [*kept[:MOST], *advice.chosen]
    reasons = [f"  {_reason(advice, row)}" for row in rows if row not in advice.own]
    return [what, *reasons, *_unknown(advice), _rests(advice, rows), *_readout(advice)]


def _reason(advice: Advice, row: Row) -> str:
    """`fedlc: above, +15.96 [+13.61, +18.32] over 3 seeds, on cifar10/shards:2 [1]; elsewhere: open in 1; diverged
    [2]`"""
    item, gain = advice.gain(row)
    others = {word: len([n for n in numbers if n != item.number]) for word, numbers in row.settings.items()}
    counted = ", ".join(f"{word} in {count}" for word, count in others.items() if count)
    more = f"; elsewhere: {counted}" if counted else ""
    lost = f"; diverged{''.join(f' [{number}]' for number in row.diverged)}" if row.diverged else ""
    return f"{row.algorithm}: {gain.points or 'no result'}, on {item.cell} [{item.number}]{more}{lost}"


def _unknown(advice: Advice) -> Iterator[str]:
    """Which evidence is missing."""
    mine = "your own runs do not decide it yet, and " if advice.own else ""
    several = any(row.settings.keys() - {NOT_DECIDED} for row in advice.like)
    missing = "no published method is above FedAvg on" if several else "no published method has three seeds on"
    why = f"{missing} {advice.kind} under similar skew; fewer seeds or other data decide nothing"
    if advice.kind == UNKNOWN:
        why = "the kind of your data is unknown (set it with --dataset); kinds differ in which methods gain"
    if advice.do == "unknown":
        yield f"Why: {mine}{why}."


def _readout(advice: Advice) -> Iterator[str]:
    """What `refit` reveals, where it is among the methods."""
    without = [name for name in advice.methods if not has_readout(name)]
    if len(without) < len(advice.methods):
        best = f"the best alternative without it is {without[0]}" if without else "no method without it gained here"
        yield f"Privacy: with refit the server can compute each client's label counts; {best}."


def _rests(advice: Advice, rows: Sequence[Row]) -> str:
    """What the verdict is based on, and how similar that is to the user's federation."""
    if not advice.evidence:
        nearest = "there is none for this training" if advice.nearest is None else f"nearest at {advice.nearest:.2f}"
        return f"Evidence: none under similar skew; {nearest}."
    used = advice.gain(rows[0])[0] if rows else advice.evidence[0]
    if used.own:
        base = used.setting["methods"][BASELINE]
        splits = {name.rpartition(" ")[2] for name in base["partitions"]}
        drawn = ", each with its own draw of the split" if len(splits) > 1 else ""
        return f"Evidence: your own runs [{used.number}] of {used.cell}, {_seeds(base['seeds'])}{drawn}."
    like = "the same kind of data as yours" if used.kind == advice.kind != UNKNOWN else "not known to be like yours"
    mine, far = scaled(advice.skew, advice.classes_held), "" if used.distance <= NEAR else ", which is not near"
    name = max(mine, key=lambda name: abs(mine[name] - used.skew[name]))
    scale = advice.classes_held if name == "effective_classes" else 1
    return (
        f"Evidence: {used.cell} [{used.number}], {used.kind}: {like}; distance in skew {used.distance:.2f}{far}, "
        f"most in {_INDICES[name]} ({scale * mine[name]:.2f} here, {scale * used.skew[name]:.2f} there)."
    )


def _row(advice: Advice, row: Row) -> str:
    """A method in the user's own runs: for each verdict the setting with most seeds, and how many more settings have
    it; then the settings in which it finished and FedAvg diverged, and those in which the method lost one."""
    parts = []
    for numbers in row.settings.values():
        item, gain = max((advice.gain(row, n) for n in numbers), key=lambda pair: (len(pair[1].seeds), pair[1].least))
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        said = gain.points.sentence(row.algorithm, "FedAvg") if gain.points else ""
        parts.append(f"{said} [{item.number}]{more}")
    mine = [(item.number, gain) for item in advice.evidence if item.own for gain in item.gains]
    alone = "".join(f" [{number}]" for number, gain in mine if gain.method == row.method and gain.is_alone)
    lost = "".join(f" [{number}]" for number in row.diverged)
    parts += [f"{row.algorithm} finished and FedAvg diverged{alone}"] if alone else []
    parts += [f"{row.algorithm} diverged{lost}"] if lost else []
    return "; ".join(parts)


def _saved(gain: Gain) -> str:
    """`138 [90, 186]`"""
    saved = gain.saved
    if saved is None:
        return "never gets there"
    span = "" if saved.half is None else f" [{round(saved.mean - saved.half)}, {round(saved.mean + saved.half)}]"
    return f"{round(saved.mean)}{span}" + (
        f" in {saved.seeds} of {len(gain.seeds)}" if saved.seeds < len(gain.seeds) else ""
    )


def training(advice: Advice) -> str | None:
    """Where a method gains much more with one momentum or augmentation than with another, all else but rounds equal."""
    best: dict[tuple[Any, ...], tuple[Evidence, Gain]] = {}
    for item in advice.evidence:
        free = ("momentum", "augment", "rounds", "methods")
        alike = tuple(str(value) for name, value in item.setting.items() if name not in free)
        for gain in item.gains if item.own or item.kind == advice.kind else ():
            key = (alike, gain.algorithm, item.setting["momentum"], item.setting["augment"])
            if gain.points and (key not in best or len(gain.seeds) > len(best[key][1].seeds)):
                best[key] = item, gain
    nearest = min(advice.evidence, key=lambda item: item.distance, default=None)
    ranked = []
    for a, b in combinations(best, 2):
        (item, more), (_, less) = pair = sorted((best[a], best[b]), key=lambda one: -one[1].mean)
        apart = more.mean - less.mean
        if a[:2] == b[:2] and apart > CLOSE and max(len(more.seeds), len(less.seeds)) > 1:
            ranked.append((more.algorithm in advice.methods[:1], nearest and item.cell == nearest.cell, apart, pair))
    if not ranked:
        return None
    pair = max(ranked, key=lambda one: one[:3])[3]
    told = [f"{gain.mean:+.1f} {_way(item.setting)} ({_seeds(gain.seeds)}) [{item.number}]" for item, gain in pair]
    return f"on {pair[0][0].cell} {pair[0][1].algorithm} gains {', '.join(told)}."


def _way(setting: Setting) -> str:
    parts = [f"momentum {setting['momentum']:g}"] if setting["momentum"] else []
    parts += ["crops"] if setting["augment"] != "none" else []
    return f"with {' and '.join(parts) or 'neither momentum nor crops'} after {setting['rounds']} rounds"


def indices(advice: Advice) -> Iterator[str]:
    """The four indices, and what each one means here."""
    skew, held = advice.skew, advice.classes_held
    meaning = (
        f"{100 * skew['mean_total_variation']:.0f} % of examples would need another label",
        f"like {skew['effective_classes']:.1f} equally frequent classes of {held}",
        f"a client has no example of {skew['missing_share'] * held:.1f} of {held} classes",
        f"client sizes go from {advice.sizes[0]} to {advice.sizes[1]}",
    )
    yield f"{advice.clients} clients, {advice.classes} classes, {advice.samples} examples; kind of data: {advice.kind}"
    for (name, title), said in zip(_INDICES.items(), meaning, strict=True):
        yield f"  {title:20}  {skew[name]:.3f}  {said}"


def evidence(advice: Advice, shown: Sequence[Evidence], *, whole: bool) -> Iterator[str]:
    """Each setting with its training, FedAvg's accuracy and the gains over it."""
    named = {row.method for row in (*advice.chosen, *advice.own)}
    if shown:
        mean = mean_words(item.setting["rounds"] for item in shown)
        yield ""
        yield f"Evidence (points in accuracy, {mean}; rounds to FedAvg's end; 95 % intervals)"
    for item in shown:
        setting = item.setting
        kind = "" if advice.kind in (item.kind, UNKNOWN) else ", another kind of data"
        whose = "your runs" if item.own else f"distance {item.distance:.2f}{kind}"
        fedavg = "diverged" if item.base.accuracy is None else f"{item.base.accuracy:.2f} %"
        yield f"[{item.number}] {item.cell}, {setting['clients']} clients ({whose}); FedAvg {fedavg}"
        usual = {"clients_per_round": setting["clients"], **{name: Run.model_fields[name].default for name in _ODD}}
        odd = [f", {name} {spec.show(setting[name])}" for name, value in usual.items() if setting[name] != value]
        way = f"momentum {setting['momentum']:g}, lr {setting['lr']:g}, {setting['model']}{''.join(odd)}"
        yield f"    {setting['rounds']} rounds, E {setting['local_epochs']}, {way}"
        best = sorted(item.gains, key=lambda gain: gain.verdict != "above")[: len(item.gains) if whole else _BEST]
        gains = [gain for gain in item.gains if gain in best or gain.method in named]
        few = [gain for gain in gains if gain.verdict == NOT_DECIDED]
        yield from _columns([gain for gain in gains if gain.verdict not in (None, NOT_DECIDED)])
        if few:
            said = (f"{gain.algorithm} {gain.mean:+.2f}" for gain in few)
            yield f"    one or two seeds, which decide nothing: {', '.join(said)}"
        if alone := [gain for gain in gains if gain.is_alone]:
            reached = (f"{gain.algorithm} {gain.accuracy:.2f} % ({_seeds(gain.seeds)})" for gain in alone)
            yield f"    FedAvg diverged with these seeds, so there is no difference to it: {', '.join(reached)}"
        unjudged = [gain for gain in gains if gain.verdict is None and gain.diverged]
        if lost := [f"{gain.algorithm} (seeds {gain.diverged})" for gain in unjudged]:
            yield f"    diverged: {', '.join(lost)}"
        if len(gains) < len(item.gains):
            yield f"    {len(item.gains) - len(gains)} more: --all"
    if any(has_readout(gain.algorithm) and len(gain.seeds) >= FEWEST for item in shown for gain in item.gains):
        asks = ALGORITHMS["refit"]().readout.asks
        yield f"Rounds saved leave out what refit asks: all clients, up to {asks} times in each measured round."
    if len(advice.evidence) > len(shown):
        yield f"{len(advice.evidence) - len(shown)} more settings: --all."


def _columns(gains: Sequence[Gain]) -> Iterator[str]:
    """Methods with several seeds, in columns."""
    rows = [("method", "over FedAvg", "verdict", "seeds", "rounds saved")] if gains else []
    for gain in gains:
        lost = f"; diverged with seeds {gain.diverged}" if gain.diverged else ""
        points = f"{gain.mean:+.2f} {gain.points.interval}" if gain.points else ""
        rows.append((gain.algorithm, points, gain.verdict or "", str(len(gain.seeds)), _saved(gain) + lost))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield f"    {'  '.join(f'{cell:{width}}' for cell, width in zip(row, widths, strict=True))}".rstrip()


def _seeds(seeds: Sequence[int]) -> str:
    return "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
