"""A run at many settings: every combination of values of some fields and arguments of methods, over several seeds.

sweep = Sweep.of({"dataset": "digits", "algorithm": "fedlc"}, {"tau": [1, 2, 5], "lr": [0.01, 0.1]}, seeds=3)
for name, run, record in simulate_groups(sweep.groups, store): ...
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedskew.core import spec
from fedskew.core.spec import Value
from fedskew.data import own_clients
from fedskew.knobs import arguments_of, find_argument, short_without, with_arguments
from fedskew.runs.run import Run, check_seeds
from fedskew.runs.summary import setting_text
from fedskew.runs.versions import DECIDING_NOTHING

NOT_SWEPT = {"seed": "--seeds sets how many seeds are run", **dict.fromkeys(DECIDING_NOTHING, "it decides no result")}
"""Fields that take only one value, and why."""


@dataclass(frozen=True)
class PlannedSetting:
    """One combination of values, and its run for each seed. A value is None if the method has no such argument."""

    values: dict[str, Value]
    runs: list[Run]

    @property
    def name(self) -> str:
        """`tau=2, lr=0.1`"""
        return setting_text(self.values)

    @property
    def hashes(self) -> list[str]:
        return [run.hash for run in self.runs]

    @property
    def rounds(self) -> int:
        return self.runs[0].rounds


@dataclass(frozen=True)
class Sweep:
    """All settings, and the reference that the others are compared with: the one with the default of each name, or with
    its first value if the default is not among them."""

    settings: list[PlannedSetting]
    reference: int

    @classmethod
    def of(cls, base: Run | Mapping[str, Any], values: Mapping[str, Sequence[Any]], seeds: int = 1) -> "Sweep":
        """All combinations of the values. A name is a field of a run, or an argument of its method (`tau`, or
        `fedlc.tau`); a method without that argument has one setting for all its values."""
        check_seeds(seeds)
        fields = base.given if isinstance(base, Run) else dict(base)
        _check_names(fields, values)
        fields |= _natural_clients(fields, values)
        settings = dict[tuple[str, int], PlannedSetting]()
        for combination in product(*values.values()):
            made = _setting(fields, dict(zip(values, combination, strict=True)), seeds)
            settings.setdefault((made.runs[0].hash, made.rounds), made)
        found = list(settings.values())
        return cls(found, _reference(fields, found))

    @property
    def groups(self) -> list[tuple[str, list[Run]]]:
        """The name and the runs of each setting."""
        return [(setting.name, setting.runs) for setting in self.settings]

    @property
    def title(self) -> str:
        """The federation and the method, as far as all runs share them."""
        reference = self.settings[self.reference]
        run, names = reference.runs[0], set(reference.values)
        where = run.short["dataset"] if {"partition", "clients", "dataset"} & names else run.title
        return where if "algorithm" in names else f"{spec.family(run.short_algorithm)} on {where}"


def run_at(fields: Mapping[str, Any], values: Mapping[str, Any]) -> Run:
    """The run of these fields at a setting; arguments are those of its method."""
    changed = {name: value for name, value in values.items() if name in Run.model_fields}
    arguments = {name: value for name, value in values.items() if name not in Run.model_fields}
    whole = {**fields, **changed}
    if arguments:
        whole["algorithm"] = with_arguments(whole.get("algorithm", "fedavg"), arguments)
    return Run(**whole)


def value_at(run: Run, name: str) -> Value:
    """A run's value of a field or of an argument of its method, as people write it; None if it has no such argument."""
    if name in run.short:
        return run.short[name]
    if name in Run.model_fields:
        found: Value = getattr(run, name)
        return "none" if found is None else found
    argument = find_argument(run.algorithm, name)
    return None if argument is None else argument.value


def _setting(fields: Mapping[str, Any], values: Mapping[str, Any], seeds: int) -> PlannedSetting:
    method = str(values.get("algorithm", fields.get("algorithm", "fedavg")))
    known = {name: value for name, value in values.items() if name in Run.model_fields or find_argument(method, name)}
    first = run_at(fields, known)
    shown = {name: value_at(first, name) for name in values}
    if "algorithm" in values:
        shown["algorithm"] = short_without(method, values.keys() - Run.model_fields.keys())
    return PlannedSetting(shown, [first.model_copy(update={"seed": first.seed + s}) for s in range(seeds)])


def _check_names(fields: Mapping[str, Any], values: Mapping[str, Sequence[Any]]) -> None:
    """Check that every name is a field of the run or an argument of a method, and has values."""
    methods = [str(method) for method in values.get("algorithm", [fields.get("algorithm", "fedavg")])]
    for name, found in values.items():
        if not found:
            raise ValueError(f"{name} has no values; for example {name} 1,2,5")
        if name in NOT_SWEPT:
            raise ValueError(f"{name} cannot have several values: {NOT_SWEPT[name]}")
        if name not in Run.model_fields and not any(find_argument(method, name) for method in methods):
            arguments = {each.name: None for method in methods for each in arguments_of(method)}
            said = f"argument of {', '.join(methods)} or field of a run"
            made = any("@" in method and not arguments_of(method) for method in methods)
            hint = "; an algorithm that was made has no arguments, the function that makes it has" if made else ""
            raise ValueError(spec.unknown(said, name, {**arguments, **Run.model_fields}) + hint)


def _natural_clients(fields: Mapping[str, Any], values: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """The number of clients that the data have, if their own split is compared with others, which then have as many."""
    dataset = fields.get("dataset")
    if "natural" not in values.get("partition", ()) or "dataset" in values or not isinstance(dataset, str):
        return {}
    own = None if "clients" in {**fields, **values} else own_clients(dataset)
    return {} if own is None else {"clients": own}


def _reference(fields: Mapping[str, Any], settings: Sequence[PlannedSetting]) -> int:
    """The position of the reference setting."""
    tried = [setting.values for setting in settings]
    method = {"algorithm": _usual("algorithm", tried, "fedavg")} if "algorithm" in tried[0] else {}
    try:
        plain = run_at(fields, method)
    except ValueError:  # the defaults alone need not be a valid run
        return 0
    wanted = {name: _usual(name, tried, value_at(plain, name)) for name in tried[0]} | method
    return tried.index(wanted) if wanted in tried else 0


def _usual(name: str, tried: Sequence[Mapping[str, Value]], default: Value) -> Value:
    values = [values[name] for values in tried]
    return default if default in values else values[0]
