"""What runs say about methods, by how skewed the labels were: the table that `fedskew advise` reads, and the user's own
runs.

A setting is everything about a run except its method and its seed; it is evidence if FedAvg and another method ran in
it. `docs/pages/evidence_table.py` writes the table.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from itertools import groupby
from typing import Any

from fedskew.core import spec
from fedskew.partition.owners import Ints
from fedskew.runs.measures import end, first_round
from fedskew.runs.results import Result, Results, question
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.runs.summary import counted
from fedskew.runs.verdict import BASELINE
from fedskew.runs.versions import DECIDING_NOTHING

_SHOWN = ("dataset", "partition", "model")
_PLAIN = [name for name in Run.model_fields if name not in {*_SHOWN, "algorithm", "seed", *DECIDING_NOTHING}]
Short = Callable[[Result], Mapping[str, str]]
"""How a run's specs are written."""


def load() -> dict[str, Any]:
    """The table that ships with the package."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


def own_settings(store: Store, counts: Ints, dataset: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Settings of the user's runs in which some run has this split, and what could not be read. All seeds
    of such a setting belong to it: the same rule draws their splits. Without a data set, equal counts are enough. Runs
    with an earlier content of the user's own files are left out."""
    results, table = Results(store), counts.tolist()
    found = [result for result in results if _is_current(result)]

    def is_here(result: Result) -> bool:
        card = store.folder(result.hash).card() if dataset in (None, result.run["dataset"]) else None
        return card is not None and card["counts"] == table

    here = {_setting(result) for result in found if is_here(result)}
    kept = [r for r in found if _setting(r) in here]
    earlier = len(list(results)) - len(found)
    said = [f"{counted(earlier, 'run')} with an earlier content of your own files"] if earlier else []
    return settings(kept, _told_apart), [*results.problems, *said]


def _is_current(result: Result) -> bool:
    """Whether the user's own files that a run names are there and have the same content."""
    if "contents" not in result.short:
        return True
    try:
        return Run(**result.run).contents == result.short["contents"]
    except ValueError:
        return False


def partition_name(result: Result, dataset: str | None = None) -> str:
    """A split of labels. Its hash covers only indices, so data sets or their seeds can share it, as Synthetic does."""
    named = dataset or _short(result)["dataset"]
    return f"{named} seed {result.run['seed']} {str(result.summary['partition_hash'])[:16]}"


def _short(result: Result) -> Mapping[str, str]:
    """Specs as people write them with today's defaults, which may differ from those stored in a line."""
    return Run(**result.run).short


def _told_apart(result: Result) -> Mapping[str, str]:
    """Specs as people wrote them, but whole where they name code or files of the user's own: a command needs their
    path, and two Python functions of one name are two methods, whose runs are no seeds of one."""
    named = {name: result.run[name] for name in ("dataset", "partition", "model", "algorithm")}
    return {**result.short, **{name: whole for name, whole in named.items() if any(map(_is_own, whole.split("+")))}}


def _is_own(text: str) -> bool:
    return spec.is_own(text) or "path" in spec.parse(text)[2]


def settings(results: Iterable[Result], short: Short = _short) -> list[dict[str, Any]]:
    """Every setting in which FedAvg and another method ran."""
    ordered = sorted(results, key=lambda result: (_setting(result), result.run["algorithm"], result.seed))
    groups = [list(group) for _, group in groupby(ordered, _setting)]
    made = [_described(group, short) for group in groups]
    return [setting for setting in made if len(setting["methods"]) > 1 and BASELINE in setting["methods"]]


def _setting(result: Result) -> tuple[str, int, str]:
    asked = question({**result.run, "algorithm": ""})
    return asked, result.rounds, str(result.run["precision"])


def _described(group: list[Result], short: Short) -> dict[str, Any]:
    run, named = group[0].run, [short(result) for result in group]
    plain = {name: run.get(name, 0.0) for name in _PLAIN}
    ran = dict[str, list[Result]]()
    for result, name in zip(group, named, strict=True):
        ran.setdefault(name["algorithm"], []).append(result)
    ends = {r.seed: end(r.curve) for r in ran.get(BASELINE, ()) if r.curve and not r.diverged}
    methods = {name: _method(same, ends, named[0]["dataset"]) for name, same in ran.items()}
    return {**{name: named[0][name] for name in _SHOWN}, **plain, "methods": methods}


def _method(same: list[Result], ends: Mapping[int, float], dataset: str) -> dict[str, Any]:
    """A method over its seeds, in their order. `accuracy` is the mean of the last ten rounds; `reach` is the first
    evaluated round that reaches FedAvg's final accuracy under the same seed. Both are null if the run diverged."""
    kept = [None if r.diverged else r for r in same]
    return {
        "seeds": [r.seed for r in same],
        "accuracy": [r and round(r.summary["accuracy_last10"], 6) for r in kept],
        "reach": [first_round(r.curve, ends[r.seed]) if r and r.seed in ends else None for r in kept],
        "held_out": [r.summary["validation_accuracy"] for r in same],
        "runs": [r.hash for r in same],
        "partitions": [partition_name(r, dataset) for r in same],
    }
