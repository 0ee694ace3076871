"""Advice in words: what to do in three lines, then the evidence. Every figure names its setting."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from fedskew.advice.findings import NEAR, Advice, Evidence, Gain, Row, Setting, scaled
from fedskew.advice.kinds import UNKNOWN
from fedskew.core import spec
from fedskew.runs.run import Run
from fedskew.runs.summary import mean_words
from fedskew.runs.verdict import BASELINE, CLOSE, NOT_DECIDED

_INDICES = {
    "mean_total_variation": "mean total variation to the global labels",
    "effective_classes": "effective number of classes per client",
    "missing_share": "share of classes a client misses",
    "size_gini": "Gini coefficient of client sizes",
}
_ODD = ("augment", "optimizer", "weighting", "weight_decay", "lr_schedule", "grad_clip", "dropout_rate", "validation")
_COUNTED = ("nothing", "this one", "these two", "these three")
_LISTED = 8
"""Settings that the text shows."""


def lines(advice: Advice) -> Iterator[str]:
    """The whole text, except the command at its end."""
    yield from verdict(advice)
    if said := training(advice):
        yield f"How you train matters: {said}"
    yield ""
    yield from indices(advice)
    yield from evidence(advice)


def verdict(advice: Advice) -> list[str]:
    """What to do, why, and how similar the evidence is to the user's data."""
    if advice.clients == 1:
        return ["There is one client: nothing is averaged, and no labels are skewed. Train on it directly."]
    if advice.classes_held == 1:
        return ["There is one class: a model that always answers it is right, and there is nothing to learn."]
    if advice.do == "even":
        far = advice.skew["mean_total_variation"]
        return [f"Use FedAvg: labels are hardly skewed here (mean total variation {far:.3f})."]
    named = ", ".join(advice.methods)
    what = {
        "use": f"Use {', or else '.join(advice.methods)}.",
        "depends": f"It depends on how you train: {named} gained in some settings and lost in others.",
        "keep": f"Stay with FedAvg: no method that was run is above it. Still to try: {named}.",
        "unknown": f"Unknown on data like yours; try {_COUNTED[len(advice.methods)]}: {named}.",
    }[advice.do]
    if advice.own:
        what += f" Your own runs on this split: {'; '.join(_row(advice, row) for row in advice.own)}."
    return [what, _why(advice), _rests(advice)]


def _why(advice: Advice) -> str:
    """Points and rounds of the first recommendation, or which evidence is missing."""
    if advice.basis:
        row = advice.basis[0]
        (item, gain), name = advice.gain(row), row.algorithm
        counted = ", ".join(f"{word} in {len(numbers)}" for word, numbers in row.settings.items())
        more = f"; in all such settings: {counted}" if sum(map(len, row.settings.values())) > 1 else ""
        said = f"{gain.points.sentence(name, 'FedAvg')}, and" if gain.points else name
        return f"Why: {said} {_saved(item, gain)} [{item.number}]{more}."
    mine = "your own runs do not decide it yet, and " if advice.own else ""
    if advice.kind == UNKNOWN:
        return (
            f"Why: {mine}the kind of your data is unknown (set it with --dataset); kinds differ in which methods gain."
        )
    several = any(row.settings.keys() - {NOT_DECIDED} for row in advice.like)
    what = "no published method is above FedAvg on" if several else "no published method has three seeds on"
    return f"Why: {mine}{what} {advice.kind} under similar skew; fewer seeds or other data decide nothing."


def _rests(advice: Advice) -> str:
    """What the verdict is based on, and how similar that is to the user's federation."""
    if not advice.evidence:
        nearest = "there is none for this training" if advice.nearest is None else f"nearest at {advice.nearest:.2f}"
        return f"Evidence: none under similar skew; {nearest}."
    used = advice.gain(advice.basis[0])[0] if advice.basis else advice.evidence[0]
    if used.own:
        splits = {name.rpartition(" ")[2] for name in used.setting["methods"][BASELINE]["partitions"]}
        drawn = ", each with its own draw of the split" if len(splits) > 1 else ""
        return f"Evidence: your own runs [{used.number}] of {used.cell}, {_seeds(used.base)}{drawn}."
    like = "the same kind of data as yours" if used.kind == advice.kind != UNKNOWN else "not known to be like yours"
    mine, far = scaled(advice.skew, advice.classes_held), "" if used.distance <= NEAR else ", which is not near"
    name = max(mine, key=lambda name: abs(mine[name] - used.skew[name]))
    scale = advice.classes_held if name == "effective_classes" else 1
    return (
        f"Evidence: {used.cell} [{used.number}], {used.kind}: {like}; distance in skew {used.distance:.2f}{far}, "
        f"most in the {_INDICES[name]} ({scale * mine[name]:.2f} here, {scale * used.skew[name]:.2f} there)."
    )


def _row(advice: Advice, row: Row) -> str:
    """A method's verdicts: for each verdict the setting with most seeds, and how many more settings have it."""
    parts = []
    for numbers in row.settings.values():
        item, gain = max((advice.gain(row, n) for n in numbers), key=lambda pair: (len(pair[1].seeds), pair[1].least))
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        said = gain.points.sentence(row.algorithm, "FedAvg") if gain.points else ""
        parts.append(f"{said} [{item.number}]{more}")
    lost = "".join(f" [{number}]" for number in row.diverged)
    return "; ".join([*parts, *([f"{row.algorithm} diverged{lost}"] if lost else [])])


def _saved(item: Evidence, gain: Gain) -> str:
    """`reaches FedAvg's end 138 rounds earlier [+90, +186] of 200`"""
    saved = gain.saved
    if saved is None:
        return "never reaches FedAvg's end"
    span = "" if saved.half is None else f" [{saved.mean - saved.half:+.0f}, {saved.mean + saved.half:+.0f}]"
    part = f" in {saved.seeds} of {len(gain.seeds)} seeds" if saved.seeds < len(gain.seeds) else ""
    rounds = f"{abs(saved.mean):.0f} round{'' if round(abs(saved.mean)) == 1 else 's'}"
    when = f"{rounds} {'earlier' if saved.mean > 0 else 'later'}{span} of {item.setting['rounds']}"
    return f"reaches FedAvg's end {when if saved.mean else 'when FedAvg does'}{part}"


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
    told = [f"{gain.mean:+.1f} {_way(item.setting)} ({_seeds(gain)}) [{item.number}]" for item, gain in pair]
    return f"on {pair[0][0].cell} {pair[0][1].algorithm} gains {', '.join(told)}."


def _way(setting: Setting) -> str:
    parts = [f"momentum {setting['momentum']:g}"] if setting["momentum"] else []
    parts += ["crops"] if setting["augment"] != "none" else []
    return f"with {' and '.join(parts) or 'neither momentum nor crops'} after {setting['rounds']} rounds"


def indices(advice: Advice) -> Iterator[str]:
    """The four indices, and what each one means here."""
    skew, held = advice.skew, advice.classes_held
    meaning = (
        f"{100 * skew['mean_total_variation']:.0f} % of a client's examples would need another label to match all",
        f"labels vary like {skew['effective_classes']:.1f} equally frequent classes, of {held} that occur",
        f"a client has no example of {skew['missing_share'] * held:.1f} of {held} classes on average",
        f"client sizes go from {advice.sizes[0]} to {advice.sizes[1]}",
    )
    yield f"{advice.clients} clients, {advice.classes} classes, {advice.samples} examples; kind of data: {advice.kind}"
    for (name, title), said in zip(_INDICES.items(), meaning, strict=True):
        yield f"  {title:42} {skew[name]:.3f}  {said}"


def evidence(advice: Advice) -> Iterator[str]:
    """Each setting with its training, FedAvg's accuracy and the gains over it."""
    if advice.evidence:
        mean = mean_words(item.setting["rounds"] for item in advice.evidence)
        yield f"\nEvidence, in points over FedAvg ({mean}, 95 % interval over seeds):"
    for item in advice.evidence[:_LISTED]:
        setting, kind = item.setting, "" if item.kind == advice.kind else f", {item.kind}"
        whose = "your runs" if item.own else f"distance {item.distance:.2f}{kind}"
        fedavg = "diverged" if item.base.accuracy is None else f"{item.base.accuracy:.2f} %"
        yield f"[{item.number}] {item.cell}, {setting['clients']} clients ({whose}); FedAvg {fedavg}"
        usual = {"clients_per_round": setting["clients"], **{name: Run.model_fields[name].default for name in _ODD}}
        odd = [f", {name} {spec.show(setting[name])}" for name, value in usual.items() if setting[name] != value]
        way = f"momentum {setting['momentum']:g}, lr {setting['lr']:g}, {setting['model']}{''.join(odd)}"
        yield f"    {setting['rounds']} rounds, E {setting['local_epochs']}, {way}"
        for gain in item.gains:
            if len(gain.seeds) > 1:
                yield f"    {gain.algorithm:16} {gain.points}, {_saved(item, gain)}"
        alone = [f"{g.algorithm} {g.mean:+.2f}" if g.seeds else f"{g.algorithm} diverged" for g in item.gains
                 if len(g.seeds) < 2]  # fmt: skip
        if alone:
            yield f"    {'one seed':16} {', '.join(alone)}"
    if len(advice.evidence) > _LISTED:
        yield f"{len(advice.evidence) - _LISTED} more settings: --json."


def _seeds(gain: Gain) -> str:
    return "one seed" if len(gain.seeds) == 1 else f"{len(gain.seeds)} seeds"
