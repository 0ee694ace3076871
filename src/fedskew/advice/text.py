"""Advice in words. Every figure names the setting it comes from, and every setting its runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedskew.core import spec
from fedskew.runs.verdict import NOT_DECIDED, Difference

_INDICES = {
    "mean_total_variation": "mean total variation to the global labels",
    "effective_classes": "effective number of classes per client",
    "missing_share": "share of classes a client misses",
    "size_gini": "Gini coefficient of client sizes",
}
_VERDICTS = {
    "worth trying": "worth trying",
    "depends": "depends on how you train",
    NOT_DECIDED: "not decided",
    "no gain": "no gain in this evidence",
}
_LISTED = 3
"""Other variants of a method that are named one by one."""


def lines(advice: Mapping[str, Any]) -> Iterator[str]:
    """The whole text, but for the command at its end."""
    yield f"{advice['clients']} clients, {advice['classes']} classes, {advice['samples']} examples"
    yield ""
    if advice["clients"] == 1:
        yield "There is one client: nothing is averaged and no labels are skewed between clients. Train on it directly."
    elif advice["classes_held"] == 1:
        yield "There is one class: a model that always answers it is right, and there is nothing to learn."
    else:
        yield from verdicts(advice)
    yield ""
    yield from indices(advice)
    yield from evidence(advice)


def indices(advice: Mapping[str, Any]) -> Iterator[str]:
    """The four indices, and what each one means here."""
    skew, held = advice["skew"], advice["classes_held"]
    smallest, largest = advice["sizes"]
    missing = skew["missing_share"]
    meaning = {
        "mean_total_variation": f"on average {100 * skew['mean_total_variation']:.0f} % of a client's examples would "
        "need another label for it to look like all clients together",
        "effective_classes": f"a client's labels vary as much as {skew['effective_classes']:.1f} equally frequent "
        f"classes would, of {held} that occur",
        "missing_share": f"a client has no example of {missing * held:.1f} of {held} classes on average; what it knows "
        "of them comes from others",
        "size_gini": f"client sizes go from {smallest} to {largest}; 0 is all the same, near 1 is one with nearly all",
    }
    for name, title in _INDICES.items():
        yield f"{title:42} {skew[name]:.3f}"
        yield f"    {meaning[name]}"


def verdicts(advice: Mapping[str, Any]) -> Iterator[str]:
    """How near the evidence is, and what it says about each method."""
    found, rows = advice["evidence"], advice["methods"]
    if not found:
        yield from _nothing(advice)
        return
    if advice["near"]:
        yield f"Published with similar skew, up to distance {found[-1]['distance']:.2f}: {_extent(found)}."
    else:
        yield f"No evidence is near. The nearest is {found[0]['cell']} at distance {found[0]['distance']:.2f}."
        yield f"What follows is about that alone, {_extent(found)}, and may not hold here."
    yield from _differences(advice)
    yield from _summary(rows, found, advice.get("try"))
    yield "Points over FedAvg, mean of the last ten rounds, in brackets a 95 % interval over seeds:"
    for data in dict.fromkeys(row["data"] for row in rows):
        here = [item for item in found if item["setting"]["dataset"].partition(":")[0] == data]
        yield f"On {data} ({_kind(data, here)}), {_extent(here)}:"
        for row in rows:
            if row["data"] == data:
                yield f"  {row['method']:16} {_VERDICTS[row['verdict']]}: {_settings(row, found)}"
    if untried := advice.get("untried"):
        yield f"Nothing is known here about {', '.join(untried)}."
    yield from _nearest(found)
    yield from _highest(found)
    yield from _doubts(found)


def _summary(
    rows: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], names: Sequence[str] | None
) -> Iterator[str]:
    """What is decided, in a line, and what to try where one seed leaves it open."""
    above = list(dict.fromkeys(row["method"] for row in rows if row["above"]))
    if above:
        yield f"Above FedAvg over several seeds in some of it: {', '.join(above)}."
    else:
        yield "No method is known to be above FedAvg here."
    if single := sorted({number for row in rows for number in row["one_seed"]}):
        tried = f" Try these over several seeds: {', '.join(names)}." if names else ""
        where = "All of this" if len(single) == len(found) else f"What comes from {_cited(single)}"
        yield f"{where} rests on one seed, which decides nothing.{tried}"
    elif not above:
        yield "FedAvg is the one to try first."


def evidence(advice: Mapping[str, Any]) -> Iterator[str]:
    """Each setting with FedAvg's accuracy, gains over it in points, and the runs they rest on."""
    found: Sequence[Mapping[str, Any]] = advice["evidence"]
    if found:
        yield ""
        yield "Evidence, the nearest first; gains are points over FedAvg, mean of the last ten rounds / last round:"
    for item in found:
        setting = item["setting"]
        full = f" of the paper's {setting['full_rounds']}" if item["shortened"] else ""
        yield (
            f"  [{item['number']}] {item['cell']}, {setting['clients']} clients, distance {item['distance']:.2f}, "
            f"partition {_some(item['partitions'])}"
        )
        yield (
            f"      {setting['rounds']} rounds{full}, E {setting['local_epochs']}, momentum {setting['momentum']:g}, "
            f"lr {setting['lr']:g}, {setting['model']}, {setting['precision']}{_unusual(setting)}; "
            f"{_number(len(item['base']['seeds']), 'seed')}"
        )
        yield f"      fedavg {_percent(item['base'])} (run {_some(item['base']['runs'])})"
        for gain in item["gains"]:
            yield f"      {gain['algorithm']} {_gain(gain)}{_variants(gain)} (run {_some(gain['runs'])})"


def _nothing(advice: Mapping[str, Any]) -> Iterator[str]:
    if advice["nearest"] is None:
        yield "There is no evidence for this way of training."
    else:
        yield f"There is no evidence near: the nearest published setting is at distance {advice['nearest']:.2f}."
    yield "No method can be recommended from results; the command below compares all of them."


def _differences(advice: Mapping[str, Any]) -> Iterator[str]:
    """In which index these counts differ most from the nearest evidence."""
    nearest = advice["evidence"][0]
    mine = {**advice["skew"], "effective_classes": advice["skew"]["effective_classes"] / advice["classes_held"]}
    name = max(mine, key=lambda name: abs(mine[name] - nearest["skew"][name]))
    gap = mine[name] - nearest["skew"][name]
    if abs(gap) >= 0.05:
        scale = advice["classes_held"] if name == "effective_classes" else 1
        here, there = scale * mine[name], scale * nearest["skew"][name]
        word = "higher" if gap > 0 else "lower"
        yield (
            f"The largest difference to [{nearest['number']}]: the {_INDICES[name]} is {word} here, {here:.2f} against "
            f"{there:.2f}."
        )


def _nearest(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What methods gained on the nearest cell alone, where the evidence is of several."""
    cell, gains = found[0]["cell"], dict[str, list[float]]()
    if all(item["cell"] == cell for item in found):
        return
    for item in found:
        for gain in item["gains"] if item["cell"] == cell else ():
            if gain["mean"] is not None:
                gains.setdefault(gain["algorithm"].partition(":")[0], []).append(gain["mean"])
    told = [f"{name} {_span(means)}" for name, means in gains.items()]
    if told:
        yield f"On the nearest alone, {cell}: {', '.join(told)}."


def _span(means: Sequence[float]) -> str:
    return _extremes(means) + (f" in {len(means)} trainings" if len(means) > 1 else "")


def _highest(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The highest accuracy on the nearest cell, whatever the training: a gain over a weak FedAvg may not be one."""
    cell = found[0]["cell"]
    reached = [
        (gain["accuracy"], gain["algorithm"], len(gain["seeds"]), item)
        for item in found
        for gain in [item["base"], *item["gains"]]
        if item["cell"] == cell and gain["accuracy"] is not None
    ]
    accuracy, name, seeds, item = max(reached, key=lambda one: one[0])
    there = "" if name == "fedavg" else f"; FedAvg has {_percent(item['base'])} there"
    yield (
        f"The highest accuracy on {cell} is {name}'s {accuracy:.2f} % in [{item['number']}], {_number(seeds, 'seed')}"
        f"{there}."
    )


def _settings(row: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> str:
    """Each verdict with its interval, what one seed gave, and where it diverged."""
    gains = {item["number"]: gain for item in found for gain in item["gains"] if gain["method"] == row["method"]}
    parts = []
    for word in ("above", "below", "tied"):
        if numbers := row[word]:
            parts.append(f"{word} in " + ", ".join(f"[{n}] {_difference(gains[n]).figures}" for n in numbers))
    if numbers := row["one_seed"]:
        parts.append(f"one seed in {_cited(numbers)}, {_extremes([gains[n]['mean'] for n in numbers])}")
    if numbers := row["diverged"]:
        parts.append(f"diverged in {_cited(numbers)}")
    return "; ".join(parts)


def _extremes(means: Sequence[float]) -> str:
    return f"{means[0]:+.2f}" if len(means) == 1 else f"{min(means):+.2f} to {max(means):+.2f}"


def _difference(gain: Mapping[str, Any]) -> Difference:
    return Difference(gain["mean"], gain["half"], len(gain["seeds"]))


def _doubts(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the evidence cannot carry."""
    short = [item["number"] for item in found if item["shortened"]]
    if short:
        named = "all of this" if len(short) == len(found) else _cited(short)
        yield f"Shorter than the paper's runs: {named}. Methods that start slowly look worse there."
    sets = sorted({item["setting"]["dataset"] for item in found})
    yield f"Measured on {', '.join(sets)}; on other data the order of methods can differ."


def _unusual(setting: Mapping[str, Any]) -> str:
    """What is not as in most runs."""
    usual = {
        "augment": "none", "optimizer": "sgd", "weighting": "samples", "weight_decay": 0, "lr_schedule": "constant",
        "grad_clip": None, "dropout_rate": 0,
    }  # fmt: skip
    odd = [f", {name} {spec.show(setting[name])}" for name, value in usual.items() if setting[name] != value]
    part = setting["clients_per_round"]
    odd += [f", {part} clients a round"] if part != setting["clients"] else []
    odd += [f", {100 * setting['validation']:g} % of the training examples held out"] if setting["validation"] else []
    return "".join(odd)


def _percent(gain: Mapping[str, Any]) -> str:
    return "diverged" if gain["accuracy"] is None else f"{gain['accuracy']:.2f} %"


def _gain(gain: Mapping[str, Any]) -> str:
    if gain["mean"] is None:
        return "diverged"
    found = _difference(gain)
    lost = f", seeds {', '.join(map(str, gain['diverged']))} diverged" if gain["diverged"] else ""
    return f"{found.figures if found.half is None else found} / {gain['last']:+.2f}{lost}"


def _variants(gain: Mapping[str, Any]) -> str:
    """Why this variant stands for its method, and what the others did."""
    others = gain["others"]
    if not others:
        return ""
    means = [other["mean"] for other in others if other["mean"] is not None]
    if len(others) > _LISTED and means:
        return f" ({gain['why']}; {len(others)} other variants {min(means):+.2f} to {max(means):+.2f})"
    listed = ", ".join(f"{other['algorithm']} {_gain(other)}" for other in others)
    return f" ({gain['why']}; {listed})"


def _cited(numbers: Sequence[int]) -> str:
    """`[1] [3]-[5]`"""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return " ".join(f"[{span[0]}]" if len(span) == 1 else f"[{span[0]}]-[{span[-1]}]" for span in spans)


def _extent(found: Sequence[Mapping[str, Any]]) -> str:
    """How much there is: many trainings on one split say less than as many splits."""
    splits = {name for item in found for name in item["partitions"]}
    seeds = {seed for item in found for seed in item["base"]["seeds"]}
    return f"{_number(len(found), 'training')} on {_number(len(splits), 'split')}, {_number(len(seeds), 'seed')}"


def _kind(data: str, found: Sequence[Mapping[str, Any]]) -> str:
    """What was trained on a data set."""
    models = sorted({item["setting"]["model"].partition(":")[0] for item in found})
    named = ["logistic regression" if model == "logistic" else model for model in models]
    return ", ".join([*named, "generated data"] if data == "synthetic" else named)


def _number(count: int, word: str) -> str:
    return f"one {word}" if count == 1 else f"{count} {word}s"


def _some(names: Sequence[str]) -> str:
    """Hashes of runs, or of partitions without their data set and seed."""
    return " ".join(dict.fromkeys(name.rpartition(" ")[2][:16] for name in names))
