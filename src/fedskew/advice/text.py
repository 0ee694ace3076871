"""Advice in words: what to do, a line for each method, and on what evidence. Every figure names its setting."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, count
from typing import Any

from fedskew.advice.findings import FAR, MOST, NEAR, SHORT, Advice, Row, has_readout
from fedskew.advice.gains import KIND, SAME, Evidence, Gain, Setting
from fedskew.advice.kinds import UNKNOWN
from fedskew.algorithms import ALGORITHMS
from fedskew.core import spec
from fedskew.runs.run import Run
from fedskew.runs.summary import counted, mean_words, seeds_text
from fedskew.runs.verdict import BASELINE, CLOSE, FEWEST, NOT_DECIDED

_INDICES = {
    "mean_total_variation": "mean total variation",
    "effective_classes": "effective classes",
    "missing_share": "missing share",
    "size_gini": "size Gini",
}
_ODD = ("augment", "optimizer", "weighting", "weight_decay", "lr_schedule", "grad_clip", "dropout_rate", "validation")
_COUNTED = ("", "this one", "these two", "these three")


def lines(advice: Advice, *, whole: bool = False) -> list[str]:
    """The text, except the command at its end; `whole` with every setting and what each method reached in it."""
    head, said = verdict(advice), training(advice)
    head += [f"How you train can matter: {said}"] if said else []
    cited = {int(number) for number in re.findall(r"\[(\d+)\]", " ".join(head))}
    shown = [item for item in advice.evidence if whole or item.number in cited]
    return [*head, "", *indices(advice), *evidence(advice, shown, whole=whole)]


def verdict(advice: Advice) -> list[str]:
    """What to do, on what evidence, a line for each method, and what `refit` reveals."""
    if advice.clients == 1:
        return ["There is one client: nothing is averaged, and no labels are skewed. Train on it directly."]
    if advice.classes_held == 1:
        return ["There is one class: a model that always answers it is right, and there is nothing to learn."]
    if advice.do == "even":
        far = advice.skew["mean_total_variation"]
        return [f"Use FedAvg: labels are hardly skewed here (mean total variation {far:.3f})."]
    rows = told(advice)
    return [_what(advice), *_unknown(advice), _basis(advice, rows), *_short(advice), *_methods(advice, rows),
            *_others(advice, rows), *_better(advice), *_readout(advice)]  # fmt: skip


def told(advice: Advice) -> list[Row]:
    """The methods that have a line: those to use or to try, those of the user's own runs, and of the others on the
    closest data the first that are open and the first that lost. What does not help leads where nothing does."""
    mine = [row for row in advice.counted if row not in advice.chosen]
    short = [row for row in advice.own if row not in (*advice.chosen, *mine)]
    ran = {row.algorithm for row in (*advice.chosen, *mine)}
    more = [row for row in _closest(advice) if row.algorithm not in ran]
    undecided, lost = ([row for row in more if row.stands == stands][:MOST] for stands in ("open", "keep"))
    if advice.do == "keep":
        return [*mine, *lost, *advice.chosen, *short]
    return [*advice.chosen, *mine, *undecided, *lost, *short]


def _closest(advice: Advice) -> list[Row]:
    """Published methods on the user's data set, or else on its kind of data."""
    return [row for row in advice.like if advice.gain(row)[0].data == SAME] or advice.like


def _what(advice: Advice) -> str:
    """`Use fedlc: on cifar10/dirichlet:0.1 it gained +12.3 points of accuracy over FedAvg (+4.5 to +20.2).`"""
    methods, named = advice.methods, ", ".join(advice.methods)
    if advice.do == "use":
        item, gain = advice.gain(advice.chosen[0])
        assert gain.points is not None  # it has an interval
        span = f"{gain.least:+.1f} to {gain.points.most:+.1f}"
        points = f"{gain.mean:+.1f} points of accuracy over FedAvg ({span})"
        others = f" (or else {', or else '.join(methods[1:])})" if methods[1:] else ""
        where = f"in your runs of {counted(item.rounds, 'round')}" if item.own else f"on {item.cell}"
        return f"Use {methods[0]}{others}: {where} it gained {points}."
    if advice.do == "depends":
        how = "lost" if any("below" in row.settings for row in advice.chosen) else "diverged"
        return f"It depends: {named} gained in some settings like yours and {how} in others."
    if advice.do == "keep":
        ran = list(dict.fromkeys(row.algorithm for row in (*advice.counted, *_closest(advice)) if row.stands == "keep"))
        said = f"{', '.join(ran[:MOST])}{f' and {len(ran) - MOST} more' if len(ran) > MOST else ''}"
        tries = f" Still to try: {named}." if named else ""
        return f"Stay with FedAvg: no method is above it in the runs closest to yours ({said}).{tries}"
    lost = any({"below", "tied"} & row.settings.keys() for row in (*advice.counted, *advice.like))
    none = f", and there is no method to suggest{': stay with FedAvg' if lost else ''}"
    return f"Unknown on data like yours{f'; try {_COUNTED[len(methods)]}: {named}' if named else none}."


def _unknown(advice: Advice) -> Iterator[str]:
    """Which evidence is missing."""
    mine = "your own runs do not decide it yet, and " if any(row.stands == "open" for row in advice.counted) else ""
    where = "your data set" if SAME in {advice.gain(row)[0].data for row in advice.like} else advice.kind
    why = f"no published method is above FedAvg over {FEWEST} seeds or more on {where} at the skew nearest to yours"
    if not advice.like:
        lack = "are trained this way" if advice.nearest is None else "have a skew near yours"
        why = f"no published runs on {advice.kind} {lack}"
    if advice.kind == UNKNOWN:
        why = "the kind of your data is unknown (set it with --dataset); kinds differ in which methods gain"
    if advice.do == "unknown":
        yield f"Why: {mine}{why}."


def _basis(advice: Advice, rows: Sequence[Row]) -> str:
    """What the verdict is based on, and how similar that is to the user's federation."""
    if not advice.evidence:
        nearest = "there is none for this training" if advice.nearest is None else f"nearest at {_far(advice.nearest)}"
        return f"Evidence: none under similar skew; {nearest}."
    used = advice.gain(rows[0])[0] if rows else advice.evidence[0]
    how = f"{counted(used.rounds, 'round')} [{used.number}]"
    if used.own:
        base = used.setting["methods"][BASELINE]
        splits = {name.rpartition(" ")[2] for name in base["partitions"]}
        drawn = ", each with its own draw of the split" if len(splits) > 1 else ""
        return f"Evidence: your own runs on {used.cell}, {how}, {seeds_text(len(base['seeds']))}{drawn}."
    whose = {SAME: "your data set", KIND: f"not your data set, but of its kind ({used.kind})"}
    like = whose.get(used.data, "not known to be like your data")
    far = "" if used.distance <= NEAR else ", which is not near"
    return f"Evidence: {used.cell}, {how}; {like}; distance in skew {_far(used.distance)}{far}."


def _far(distance: float) -> str:
    """`0.06`; with as many digits as show on which side of a limit it lies: `0.104` is not near."""
    texts = (f"{distance:.{digits}f}" for digits in count(2))
    return next(text for text in texts if all((float(text) <= limit) == (distance <= limit) for limit in (NEAR, FAR)))


def _short(advice: Advice) -> Iterator[str]:
    """What own runs of few rounds are worth."""
    if 0 < advice.own_rounds <= SHORT:
        worth = "which is short: longer ones may differ" if advice.own_counts else "too few to count beside longer runs"
        yield f"Your own runs have {counted(advice.own_rounds, 'round')}, {worth}."


def _methods(advice: Advice, rows: Sequence[Row]) -> Iterator[str]:
    """A line for each method, in columns; two for one that depends, of which the second is where it loses. Settings are
    named by their numbers: in the head if it is the same for all, which `_basis` then describes."""
    pairs = [
        (row, number)
        for row in rows
        for number in (row.ranked, *(row.settings.get("below", [])[:1] if row.stands == "depends" else []))
    ]
    numbers = {number for _, number in pairs}
    where = f" in [{min(numbers)}]" if len(numbers) == 1 else ""
    cells = [["method", f"over FedAvg{where}", "verdict", "seeds", "in", "elsewhere"]] if rows else []
    cells += [_cells(advice, row, number) for row, number in pairs]
    empty = {4} if where else set[int]()
    empty |= set() if any(line[5] for line in cells[1:]) else {5}
    yield from _aligned([[cell for i, cell in enumerate(line) if i not in empty] for line in cells], 2)


def _cells(advice: Advice, row: Row, number: int) -> list[str]:
    """`fedlc`, `+15.96 [+13.61, +18.32]`, `above`, `3`, `[1]`, `open 1, diverged [2]`"""
    gain = advice.gain(row, number)[1]
    elsewhere = {word: len([n for n in found if n != number]) for word, found in row.settings.items()}
    counted = [f"{word} {count}" for word, count in elsewhere.items() if count and word != NOT_DECIDED]
    more = counted if number == row.ranked else []
    more += [f"diverged {' '.join(f'[{n}]' for n in row.diverged)}"] if row.diverged else []
    word = gain.verdict or ("FedAvg diverged" if gain.is_alone else "diverged")
    return [row.algorithm, _points(gain), word, str(len(gain.seeds)), f"[{number}]", ", ".join(more)]


def _others(advice: Advice, rows: Sequence[Row]) -> Iterator[str]:
    """`Also above FedAvg: fednova. Also below FedAvg: fedlc, fedla.`: methods on the closest data that have no line."""
    shown = {row.algorithm for row in rows}
    rest = [row for row in _closest(advice) if row.algorithm not in shown]
    found = {word: [r.algorithm for r in rest if advice.gain(r)[1].verdict == word] for word in ("above", "below")}
    said = [f"Also {word} FedAvg: {', '.join(names)}." for word, names in found.items() if names]
    if said:
        yield " ".join(said)


def _better(advice: Advice) -> Iterator[str]:
    """`Above fedlc in [1]: fedla+fedacg, +6.00 [+0.81, +11.19] over 3 seeds (against FedAvg open). To try too.`"""
    if advice.better:
        first = advice.chosen[0]
        words = {gain.algorithm: gain.verdict for gain in advice.gain(first)[0].gains}
        said = (f"{b.algorithm}, {b.ahead.figures} (against FedAvg {words[b.algorithm]})" for b in advice.better)
        yield f"Above {first.algorithm} in [{first.ranked}]: {'; '.join(said)}. The command tries them too."


def _points(gain: Gain) -> str:
    return f"{gain.mean:+.2f} {gain.points.interval}".strip() if gain.points else "-"


def _readout(advice: Advice) -> Iterator[str]:
    """What `refit` reveals, where it is among the methods to use or to try."""
    named = advice.tried
    without = [name for name in named if not has_readout(name)]
    if len(without) < len(named):
        best = (
            f"the best alternative without it is {without[0]}"
            if without
            else "no method without it is known to help here"
        )
        yield f"Privacy: refit tells the server more about label counts than training does; {best}."


def _saved(gain: Gain) -> str:
    """`138 [90, 186]`"""
    saved = gain.saved
    if saved is None:
        return "never gets there"
    span = "" if saved.half is None else f" [{round(saved.least)}, {round(saved.most)}]"
    return f"{round(saved.mean)}{span}" + (
        f" in {saved.seeds} of {len(gain.seeds)}" if saved.seeds < len(gain.seeds) else ""
    )


def training(advice: Advice) -> str | None:
    """Where a method that has a line gains much more with one momentum or augmentation than with another, all else but
    rounds equal, on the data and split that speak for it."""
    named = {row.method: advice.gain(row)[0] for row in reversed(told(advice))}
    best: dict[tuple[Any, ...], tuple[Evidence, Gain]] = {}
    for item in advice.evidence if advice.do not in ("even", "nothing") else ():
        free = ("momentum", "augment", "rounds", "methods")
        alike = tuple(str(value) for name, value in item.setting.items() if name not in free)
        for gain in item.gains if item.own or item.kind == advice.kind else ():
            key = (alike, gain.algorithm, item.setting["momentum"], item.setting["augment"])
            is_told = gain.method in named and item.cell == named[gain.method].cell and gain.points
            if is_told and (key not in best or len(gain.seeds) > len(best[key][1].seeds)):
                best[key] = item, gain
    order = list(named)
    ranked = []
    for a, b in combinations(best, 2):
        (_, more), (_, less) = pair = sorted((best[a], best[b]), key=lambda one: -one[1].mean)
        apart = more.mean - less.mean
        if a[:2] == b[:2] and apart > CLOSE and max(len(more.seeds), len(less.seeds)) > 1:
            ranked.append((order.index(more.method), apart, pair))
    if not ranked:
        return None
    pair = max(ranked, key=lambda one: one[:2])[2]
    said = [
        f"{gain.mean:+.1f} {_way(item.setting)} ({seeds_text(len(gain.seeds))}) [{item.number}]" for item, gain in pair
    ]
    return f"on {pair[0][0].cell} {pair[0][1].algorithm} gains {', '.join(said)}."


def _way(setting: Setting) -> str:
    parts = [f"momentum {setting['momentum']:g}"] if setting["momentum"] else []
    parts += ["crops"] if setting["augment"] != "none" else []
    return f"with {' and '.join(parts) or 'neither momentum nor crops'} after {counted(setting['rounds'], 'round')}"


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
    """Each setting with its training and FedAvg's accuracy; `whole` with the gains over it."""
    if shown:
        mean = mean_words(item.rounds for item in shown)
        yield ""
        yield f"Settings (points in accuracy, {mean}; 95 % intervals)"
    for item in shown:
        setting = item.setting
        kind = "" if advice.kind in (item.kind, UNKNOWN) else ", another kind of data"
        whose = "your runs" if item.own else f"distance {_far(item.distance)}{kind}"
        base, over = item.base, seeds_text(len(item.base.seeds))
        fedavg = "diverged" if base.accuracy is None else f"{base.accuracy:.2f} % ({over})"
        yield f"[{item.number}] {item.cell}, {setting['clients']} clients ({whose}); FedAvg {fedavg}"
        usual = {"clients_per_round": setting["clients"], **{name: Run.model_fields[name].default for name in _ODD}}
        odd = [f", {name} {spec.show(setting[name])}" for name, value in usual.items() if setting[name] != value]
        way = f"momentum {setting['momentum']:g}, lr {setting['lr']:g}, {setting['model']}{''.join(odd)}"
        yield f"    {counted(item.rounds, 'round')}, local epochs {setting['local_epochs']}, {way}"
        yield from _gains(item.gains) if whole else ()
    asking = [gain for item in shown for gain in item.gains if has_readout(gain.algorithm) and gain.has_interval]
    if whole and asking:
        asks = ALGORITHMS["refit"]().readout.asks
        yield f"Rounds saved leave out what refit asks: all clients, up to {asks} times in each measured round."
    if advice.evidence and not whole:
        yield f"All methods and settings ({len(advice.evidence)}): --all."


def _gains(gains: Sequence[Gain]) -> Iterator[str]:
    """All methods of a setting: those with an interval in columns, then those that decide nothing or diverged."""
    rows = [("method", "over FedAvg", "verdict", "seeds", "rounds saved on the way to FedAvg's end")]
    for gain in (gain for gain in gains if gain.has_interval):
        saved = _saved(gain) + (f"; diverged with seeds {gain.diverged}" if gain.diverged else "")
        rows.append((gain.algorithm, _points(gain), gain.verdict or "", str(len(gain.seeds)), saved))
    yield from _aligned(rows if len(rows) > 1 else [], 4)
    if few := [f"{gain.algorithm} {gain.mean:+.2f}" for gain in gains if gain.verdict == NOT_DECIDED]:
        yield f"    one or two seeds, which decide nothing: {', '.join(few)}"
    if alone := [gain for gain in gains if gain.is_alone]:
        reached = (f"{gain.algorithm} {gain.accuracy:.2f} % ({seeds_text(len(gain.seeds))})" for gain in alone)
        yield f"    FedAvg diverged with these seeds, so there is no difference to it: {', '.join(reached)}"
    if lost := [
        f"{gain.algorithm} (seeds {gain.diverged})" for gain in gains if gain.verdict is None and gain.diverged
    ]:
        yield f"    diverged: {', '.join(lost)}"


def _aligned(rows: Sequence[Sequence[str]], indent: int) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield f"{' ' * indent}{'  '.join(cells)}".rstrip()
