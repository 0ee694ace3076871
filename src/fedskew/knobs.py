"""The knobs of a method: which of its arguments are worth tuning, and in which range.

Arguments and their defaults are read from the methods themselves. `RANGES` has the ranges of those that we know; a
method that is not in it, such as your own, is searched from a tenth to ten times each positive default.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedskew.algorithms import ALGORITHMS, resolve_algorithm
from fedskew.core import spec
from fedskew.core.spec import Value


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, on a logarithmic scale by default."""

    low: float
    high: float
    log: bool = True
    most: float = math.inf
    """How many different values there are."""

    def at(self, share: float) -> Value:
        """The number at a share of the way from low to high, to two digits."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        value = low + share * (high - low)
        return float(f"{math.exp(value) if self.log else value:.2g}")

    def values(self, count: int, default: Value) -> list[Value]:
        """The midpoints of `count` equal parts of the range, with the default in place of the nearest one."""
        found = [self.at((i + 0.5) / count) for i in range(count)]
        if isinstance(default, int | float) and (default > 0 or not self.log):
            there, span = self._scaled(default), self._scaled(self.high) - self._scaled(self.low)
            place = (there - self._scaled(self.low)) / span
            found[min(max(0, math.floor(place * count)), count - 1)] = default
        return found

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value


@dataclass(frozen=True)
class Choices:
    """Only these values."""

    options: tuple[Value, ...]

    @property
    def most(self) -> float:
        return len(self.options)

    def at(self, share: float) -> Value:
        return self.options[min(int(share * len(self.options)), len(self.options) - 1)]

    def values(self, count: int, default: Value) -> list[Value]:
        """The first values, starting at the default if it is one of them."""
        first = [value for value in self.options if value == default]
        return [*first, *(value for value in self.options if value not in first)][:count]


@dataclass(frozen=True)
class Knob:
    """An argument of a method or a field of a run, its range, and its default."""

    name: str
    values: Range | Choices
    default: Value = None


RANGES: dict[str, dict[str, Range]] = {
    "fedprox": {"mu": Range(1e-4, 1)},
    "fedopt": {"eta": Range(1e-3, 0.1)},
    "fedavgm": {"beta": Range(0.1, 0.97, log=False)},
    "fedexp": {"eps": Range(1e-4, 0.1)},
    "fedacg": {"lam": Range(0.5, 0.95, log=False), "mu": Range(1e-4, 0.1)},
    "feddyn": {"alpha": Range(1e-3, 1)},
    "fedcm": {"alpha": Range(0.02, 1)},
    "fedsam": {"rho": Range(5e-3, 0.5)},
    "refit": {"pull": Range(1e-5, 0.1)},
    "fedrs": {"alpha": Range(0.05, 1, log=False)},
    "fedlc": {"tau": Range(0.2, 20)},
    "fedla": {"tau": Range(0.1, 4)},
    "fedvls": {"lam": Range(0.01, 1), "suppress": Range(5e-4, 0.05)},
    "fedntd": {"beta": Range(0.1, 10)},
    "feddecorr": {"beta": Range(0.01, 1)},
    "trimmed": {"share": Range(0.05, 0.45, log=False)},
}
"""The ranges of the knobs of registered methods. An argument that is missing here keeps its default."""
LR = Range(1e-3, 1)
"""The range of the clients' learning rate, which every method has."""


def around(default: float) -> Range:
    """From a tenth of a number to ten times it."""
    return Range(default / 10, default * 10)


@dataclass(frozen=True)
class Argument:
    """An argument of one method of a spec such as `fedlc:tau=1+scaffold`; `given` if the spec sets it."""

    part: int
    method: str
    name: str
    value: Value
    given: bool

    @property
    def full_name(self) -> str:
        return f"{self.method}.{self.name}"


def arguments_of(algorithm: str) -> list[Argument]:
    """All arguments of a spec's methods."""
    found = []
    for number, (text, part) in enumerate(zip(algorithm.split("+"), resolve_algorithm(algorithm), strict=True)):
        name, values, named = spec.parse(text)
        if part.file_sha256:
            name, *values = (str(values[0]), *values[1:])
        set_ = {*list(spec.parameters(part.factory))[: len(values)], *named}
        found += [Argument(number, name, key, value, key in set_) for key, value in part.arguments.items()]
    return found


def find_argument(algorithm: str, name: str) -> Argument | None:
    """The argument with a name, `tau` or `fedlc.tau`; None if no method has it."""
    found = [each for each in arguments_of(algorithm) if name in (each.name, each.full_name)]
    if len(found) > 1:
        names = ", ".join(each.full_name for each in found)
        raise ValueError(f"{name} is an argument of several methods of {algorithm}; allowed: {names}")
    return found[0] if found else None


def with_arguments(algorithm: str, values: Mapping[str, Value]) -> str:
    """A spec with some arguments set, by `tau` or `fedlc.tau`."""
    parts = [part.text for part in resolve_algorithm(algorithm)]
    for name, value in values.items():
        argument = find_argument(algorithm, name)
        if argument is None:
            known = [each.name for each in arguments_of(algorithm)]
            raise ValueError(f"{algorithm} has no argument {name}; allowed: {', '.join(known) or 'none'}")
        method, bare, named = spec.parse(parts[argument.part])
        named[argument.name] = value
        parts[argument.part] = spec.text_of(method, bare, named)
    return "+".join(part.text for part in resolve_algorithm("+".join(parts)))


def short_without(algorithm: str, names: Collection[str]) -> str:
    """A spec as people write it, without the arguments of these names, `tau` or `fedlc.tau`: their values vary."""
    left_out = {(each.part, each.name) for each in arguments_of(algorithm) if {each.name, each.full_name} & {*names}}
    parts = []
    for number, part in enumerate(resolve_algorithm(algorithm)):
        head, _, tail = spec.short(part.text, ALGORITHMS).partition(":")
        kept = [text for text in tail.split(",") if text and (number, text.partition("=")[0]) not in left_out]
        parts.append(spec.text_of(head, kept, {}))
    return "+".join(parts)


def knobs_of(algorithm: str, taken: Collection[str] = ()) -> list[Knob]:
    """The knobs of a spec's methods: arguments that it leaves open and that have a range. If another method has the
    same name, or the name is `taken`, it is called `method.name`."""
    arguments = arguments_of(algorithm)
    names = [*(each.name for each in arguments), *taken]
    return [
        Knob(each.name if names.count(each.name) == 1 else each.full_name, values, each.value)
        for each in arguments
        if not each.given and (values := _range_of(each, algorithm)) is not None
    ]


def _range_of(argument: Argument, algorithm: str) -> Range | None:
    if argument.method in RANGES:
        return RANGES[argument.method].get(argument.name)
    factory = resolve_algorithm(algorithm)[argument.part].factory
    default = spec.parameters(factory)[argument.name].default
    return around(default) if isinstance(default, float) and default > 0 else None


def listed(knobs: Sequence[Knob]) -> str:
    """`tau 0.2 to 20, lr 0.001 to 0.1`"""
    return ", ".join(f"{knob.name} {_words(knob.values)}" for knob in knobs)


def _words(values: Range | Choices) -> str:
    if isinstance(values, Range):
        return f"{values.low:g} to {values.high:g}"
    return " or ".join(map(spec.show, values.options))
