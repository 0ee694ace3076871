"""Python objects as fields of a run: `Run(algorithm=fedlc(tau=1), model=my_module, dataset=(train, test))`.

A registered method already has a spec. Anything else gets one from its content (`core/live.py`), so that a run's fields
are strings and its hash means the same in every process.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fedskew.algorithms import Algorithm, origin
from fedskew.core.checks import made_of, required
from fedskew.core.dataset import Dataset
from fedskew.core.live import called, give

_PLAIN = {int, float, str, bool, "int", "float", "str", "bool"}


def with_specs(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run, with objects replaced by specs. Data given as objects also have a default model and
    partition."""
    changed = {name: spec(values[name]) for name, spec in _SPECS.items() if not isinstance(values.get(name, ""), str)}
    if "dataset" not in changed:
        return {**values, **changed}
    data = changed["dataset"]
    usual: dict[str, Any] = {"model": "mlp", "partition": "dirichlet:0.1"}
    if not isinstance(data, Dataset):
        return {**usual, **values, **changed}
    if data.client_train is not None:
        usual |= {"partition": "natural", "clients": int(data.client_train.max()) + 1}
    return {**usual, **values, **changed, "dataset": give(data.name, data, lambda: data)}


def algorithm_spec(given: object) -> str:
    """The spec of a method, a combination, a loss, or a function that returns one of them."""
    if isinstance(given, Algorithm):
        known = origin(given)
        if isinstance(known, str):
            return known
        return "+".join(map(algorithm_spec, known)) if known else give(given.name, given, lambda: given)
    function = _callable("algorithm", given, "a spec, an Algorithm, a loss, or a function that returns one of them")
    needed = required(function)
    if wanting := [p.name for p in needed if p.annotation in _PLAIN]:
        raise ValueError(f"algorithm: {called(given)} needs {', '.join(wanting)}; call it: {called(given)}(...)")
    return give(called(given), given, (lambda: given) if needed else function)


def model_spec(given: object) -> str:
    """The spec of a module, which every seed then starts from, or of a factory."""
    if isinstance(given, nn.Module):
        kept = copy.deepcopy(given)
        return give(called(given), kept, lambda: copy.deepcopy(kept))
    function = _callable("model", given, "a spec, a torch.nn.Module, its class, or a function that returns one")
    return give(called(given), given, function)


def partition_spec(given: object) -> str:
    """The spec of a split (labels, clients, generator) -> indices of each client, or of a function that returns one."""
    function = _callable("partition", given, "a spec, or a function of labels, clients and a generator")
    return give(called(given), given, (lambda: given) if len(required(function)) == 3 else function)


def _dataset(given: object) -> Dataset | str:
    """The spec of data, or of a function that returns them."""
    from fedskew.data.objects import as_dataset  # which imports Pillow

    if isinstance(given, Dataset):
        return given
    if isinstance(given, Mapping) and {"train", "test"} <= set(given):
        return as_dataset(given["train"], given["test"])
    if isinstance(given, tuple | list) and len(given) == 2:
        return as_dataset(*given)
    allowed = "a spec, a Dataset, (train, test), a mapping with train and test, or a function that returns a Dataset"
    return give(called(given), given, _callable("dataset", given, allowed))


_SPECS: dict[str, Callable[[Any], Any]] = {
    "dataset": _dataset,
    "partition": partition_spec,
    "model": model_spec,
    "algorithm": algorithm_spec,
}


def _callable(field: str, given: object, allowed: str) -> Callable[..., Any]:
    if not callable(given):
        raise ValueError(f"{field} is {made_of(given)}; allowed: {allowed}")
    return given
