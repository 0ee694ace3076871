"""One run, and several seeds of one method, in a few numbers."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedskew.core import spec

LAST = 10
"""Rounds at the end of a run that are always evaluated, so that their mean does not depend on eval_every."""


def tail(rounds: int) -> int:
    """How many rounds are the end of a run: the last ten, but no more than half of them, rounded up, since a mean over
    a run's beginning rewards a fast start."""
    return min(LAST, (rounds + 1) // 2)


def counted(number: int, thing: str) -> str:
    """`1 round`, `60 rounds`"""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def seeds_text(number: int) -> str:
    """`one seed`, `3 seeds`"""
    return "one seed" if number == 1 else f"{number} seeds"


def mean_words(rounds: Iterable[int]) -> str:
    """What `accuracy_last10` is of runs with these numbers of rounds: `mean of the last ten rounds`."""
    lengths = {tail(number) for number in rounds} or {LAST}
    if lengths == {1}:
        return "last round"
    most = "ten" if max(lengths) == LAST else str(max(lengths))
    return f"mean of the last {most if len(lengths) == 1 else f'{min(lengths)} to {most}'} rounds"


def mean_head(rounds: Iterable[int]) -> str:
    """The same as the head of a column: `last ten rounds`."""
    return mean_words(rounds).removeprefix("mean of the ")


def is_finished(records: Sequence[dict[str, Any]], rounds: int, saved: int) -> bool:
    """Whether the first records of a run make a complete run of this length: it diverged on the way, or it was
    evaluated in each of its last rounds. For records after the last saved round no model was kept."""
    first = records[:rounds]
    whole = len(first) == rounds and all(record["accuracy"] is not None for record in first[-tail(rounds) :])
    return len(first) <= saved and (whole or bool(first and first[-1]["diverged"]))


def state_of(done: int, rounds: int, saved: int, *, diverged: bool) -> str:
    """`done`, `diverged`, or `unfinished`: rounds are missing, or the model of the last one was not kept."""
    if saved < min(done, rounds) or not (diverged or done >= rounds):
        return "unfinished"
    return "diverged" if diverged else "done"


def summarise(run: dict[str, Any], records: Sequence[dict[str, Any]], card: dict[str, Any] | None) -> dict[str, Any]:
    """The result of a run: its last evaluated round, and the mean accuracy of its end."""
    measured = [record for record in records if record["accuracy"] is not None]
    last, rounds = measured[-1] if measured else {}, records[-1]["round"] if records else 0
    end = [record["accuracy"] for record in measured if record["round"] > rounds - tail(rounds)]
    return {
        "algorithm": run["algorithm"],
        "seed": run["seed"],
        "rounds": rounds,
        "accuracy": last.get("accuracy"),
        "accuracy_last10": statistics.fmean(end) if end else None,
        "balanced_accuracy": last.get("balanced_accuracy"),
        "client_accuracy": last.get("client_accuracy"),
        "loss": last.get("loss"),
        "validation_accuracy": last.get("validation_accuracy"),
        "per_class_accuracy": last.get("per_class_accuracy"),
        "diverged": bool(records and records[-1].get("diverged")),
        "seconds": sum(record["seconds"] for record in records),
        "engine": records[-1]["engine"] if records else None,
        "device": records[-1]["device"] if records else None,
        "partition_hash": card["hash"] if card else None,
    }


MEASURES = ("accuracy", "balanced_accuracy", "client_accuracy", "accuracy_last10", "loss", "validation_accuracy")


def over_seeds(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation (ddof = 1) of each measure over seeds, and `each` seed's own value; a diverged
    seed has none and is counted separately."""
    row: dict[str, Any] = {
        "algorithm": summaries[0]["algorithm"],
        "seeds": [summary["seed"] for summary in summaries],
        "diverged": sum(summary["diverged"] for summary in summaries),
        "seconds": sum(summary["seconds"] for summary in summaries),
    }
    for name in MEASURES:
        each = [None if s["diverged"] else s.get(name) for s in summaries]
        values = [value for value in each if value is not None]
        row[name] = {
            "mean": statistics.fmean(values) if values else None,
            "std": statistics.stdev(values) if len(values) > 1 else None,
            "each": each,
        }
    return row


def held_out(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The measure of held-out examples, if some row of `over_seeds` has one: its column is shown only then."""
    return ["validation_accuracy"] if any(row["validation_accuracy"]["mean"] is not None for row in rows) else []


def contents(short: Mapping[str, str]) -> dict[str, str]:
    """A digest of the user's own files by the field that names them, from a stored run's `short`."""
    return dict(each.split(" ", 1) for each in short.get("contents", "").split(", ") if " " in each)


def setting_text(values: Mapping[str, spec.Value]) -> str:
    """`tau=2, lr=0.1`; a method is shown without its name, and None is left out."""
    shown = {name: spec.show(value) for name, value in values.items() if value is not None}
    return ", ".join(text if name == "algorithm" else f"{name}={text}" for name, text in shown.items())


def percent(mean: float | None, std: float | None = None) -> str:
    """`63.55 ± 0.42` from fractions."""
    if mean is None:
        return "-"
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f}"
