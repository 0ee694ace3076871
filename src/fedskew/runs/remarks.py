"""What to say about a run whose result is no use, and what to try then."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.core import spec
from fedskew.runs.summary import percent, tail


def diverged_words(result: Mapping[str, Any]) -> str:
    """Where a run diverged. In round 1 a part of the user's own is a likelier cause than the learning rate."""
    own = [name for name in ("algorithm", "model") if any(map(spec.is_own, result["run"][name].split("+")))]
    first = f"look at this run's own {' and '.join(own)} first, then " if own and result["rounds"] == 1 else ""
    return f"diverged in round {result['rounds']}: the model gives no finite numbers; {first}try a smaller lr"


def guessing_words(result: Mapping[str, Any], session: Mapping[str, Any]) -> str | None:
    """What to say of a model that is no better than guessing: neither its accuracy nor its balanced accuracy is above
    what guessing reaches on the test set, as the session noted it. Both, because always naming the most frequent class
    is guessing too, and because few examples of rare classes may hide what a model knows of others.
    """
    shares, balanced = result["per_class_accuracy"], result["balanced_accuracy"]
    if result["diverged"] or not shares or balanced is None:
        return None
    present = sum(share is not None for share in shares)
    reached = session.get("guessing_balanced_accuracy", 1 / present)  # earlier versions did not note it
    if balanced > reached + 1e-9 or result["accuracy"] > session.get("guessing_accuracy", 1.0):
        return None
    known = f"whose balanced accuracy on this test set is up to {percent(reached)} %"
    return f"no better than guessing, {known}; try another lr, or more rounds if these were few"


def measured_words(records: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say of a mean over the end of a federation's run whose rounds were not measured on the same examples."""
    end = [record for record in records[len(records) - tail(len(records)) :] if record.get("measured_by")]
    several = {(tuple(record["measured_by"]), record["measured_on"]) for record in end}
    if len(several) < 2:
        return None
    shown = [f"{', '.join(map(str, clients))} ({examples} examples)" for clients, examples in sorted(several)]
    return f"the rounds in accuracy_last10 were measured by different clients: {'; '.join(shown)}"
