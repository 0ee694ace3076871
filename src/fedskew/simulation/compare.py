"""Several methods on the same federations: same seeds, so same data, split, initial model and cohorts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.runs.measures import IID
from fedskew.runs.run import Run, check_seeds

RENAME = ': dataclasses.replace(method, name="...") gives an Algorithm another one'
"""What to do if objects have one name."""


@dataclass(frozen=True)
class Comparison:
    """One run per method and seed."""

    runs: dict[str, list[Run]]

    @classmethod
    def of(cls, base: Run, algorithms: Sequence[Any], seeds: int) -> "Comparison":
        """Methods are specs, or objects that a run accepts instead. Specs of two files that name their methods alike
        are told apart as they were written."""
        check_seeds(seeds)
        methods: dict[str, list[Run]] = {}
        firsts = [base.replace(algorithm=algorithm) for algorithm in algorithms]
        shorts = [first.short_algorithm for first in firsts]
        for algorithm, first, short in zip(algorithms, firsts, shorts, strict=True):
            variants = [first.replace(seed=base.seed + s) for s in range(seeds)]
            alike = {other.hash for other, name in zip(firsts, shorts, strict=True) if name == short}
            name = algorithm if len(alike) > 1 and isinstance(algorithm, str) else short
            if name in methods:
                hint = "" if isinstance(algorithm, str) or len(alike) == 1 else RENAME
                raise ValueError(f"{name} appears twice; compared methods need different names{hint}")
            methods[name] = variants
        return cls(methods)

    def on_iid(self) -> "Comparison":
        """The same methods and seeds on an IID split."""
        some = next(iter(self.runs.values()))[0]
        if some.partition == IID:
            raise ValueError(f"partition is already {IID!r}; --iid is for other partitions")
        return Comparison({name: [run.replace(partition=IID) for run in runs] for name, runs in self.runs.items()})

    def name_of(self, baseline: Any) -> str:
        """The name of a method that is among those compared, given as they are; `fedlc:tau=5` is `fedlc`."""
        some = next(iter(self.runs.values()))[0]
        if isinstance(baseline, str) and baseline in self.runs:
            return baseline
        try:
            name = some.replace(algorithm=baseline).short_algorithm
        except ValueError:
            name = None
        if name not in self.runs:
            raise ValueError(f"baseline is {baseline!r}; allowed: one of the compared methods, {'; '.join(self.runs)}")
        return name

    @property
    def groups(self) -> list[tuple[str, list[Run]]]:
        """The name and the runs of each method."""
        return list(self.runs.items())

    @property
    def hashes(self) -> dict[str, list[str]]:
        return {name: [run.hash for run in runs] for name, runs in self.runs.items()}
